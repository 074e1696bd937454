#!/bin/sh
# tests/mount/malformed-tree.sh - hostile Directory messages are refused as a whole (C17)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# Protobuf by hand: byte N, varint N, field TAG < payload.
byte() {
	# shellcheck disable=SC2059
	printf "\\$(printf %03o "$1")"
}

varint() {
	n=$1
	while [ "$n" -gt 127 ]; do
		byte $((n % 128 + 128))
		n=$((n / 128))
	done
	byte "$n"
}

field() {
	cat > "$T/pb-$$-$2"
	varint $(($1 * 8 + 2))
	varint "$(wc -c < "$T/pb-$$-$2")"
	cat "$T/pb-$$-$2"
}

# digest HASH SIZE; file NAME [HASH SIZE]; dir NAME HASH SIZE; link NAME TARGET
digest() {
	printf %s "$1" | field 1 hash
	[ "$2" -eq 0 ] || { byte 16 && varint "$2"; }
}

node() {
	{
		printf "$2" | field 1 name
		digest "${3:-$hash}" "${4:-5}" | field 2 digest
	} | field "$1" node
}

file() {
	node 1 "$@"
}

dir() {
	node 2 "$@"
}

link() {
	{
		printf "$1" | field 1 name
		printf "$2" | field 2 target
	} | field 3 node
}

echo text > "$T/text"
blob=$(put "$T/text")
hash=${blob%/*}
: > "$T/empty"
none=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
mount_start

# bad WHAT < message: refused everywhere, with the digest named, and nothing appears.
bad() {
	cat > "$T/message"
	message=$(put "$T/message")
	"$FSCHECK" call 'EIO|ENOENT' opendir "$MNT/cas/directory/$(dashed "$message")" || fail "$1: listed"
	expect 1 within 10 "$CASBOX" sandbox create --root "$message" --id bad --mount "$MNT"
	grep -q "${message%/*}" "$T/err" || fail "$1: sandbox create does not name it: $(cat "$T/err")"
	expect 1 within 10 "$CASBOX" checkout "$message" "$T/dest"
	grep -q "${message%/*}" "$T/err" || fail "$1: checkout does not name it: $(cat "$T/err")"
	[ ! -e "$T/dest" ] || fail "$1: checkout made something"
	expect 1 within 10 "$CASBOX" ls "$message"
	eq "$1: sandboxes" "" "$(ls "$MNT/sandboxes")"
	# As a child: the parent stands, the child answers with an error and no crash.
	dir child "${message%/*}" "${message#*/}" > "$T/parent"
	parent=$(put "$T/parent")
	"$FSCHECK" call 'EIO|ENOENT' opendir "$MNT/cas/directory/$(dashed "$parent")/child" || fail "$1: child listed"
	expect 1 within 10 "$CASBOX" checkout "$parent" "$T/dest"
	[ ! -e "$T/dest" ] || fail "$1: checkout of the parent made something"
}

file '' | bad "empty name"
file . | bad "dot"
file .. | bad "dot dot"
dir .. "$none" 0 | bad "dot dot directory"
link .. x | bad "dot dot link"
file a/b | bad "slash"
file /x | bad "absolute"
file 'a\0b' | bad "NUL"
file "$(printf 'n%.0s' $(seq 256))" | bad "long name"
{ file same && file same; } | bad "twice"
{ file same && dir same "$none" 0; } | bad "file and directory"
{ file same && link same x; } | bad "file and link"
{ file b && file a; } | bad "unsorted"
file x "$(printf %.63s "$hash")" | bad "short hash"
file x "${hash}a" | bad "long hash"
file x "$(printf %s "$hash" | tr a-f A-F)" | bad "upper case"
file x "$none" 103 | bad "size of the empty blob"
link l '' | bad "empty target"
link l "$(printf 't%.0s' $(seq 5000))" | bad "long target"
file x | head -c 20 | bad "truncated"
printf '\377\377\377\377\377\377\377\377\377\377\377' | bad "endless varint"

# Legal, however odd: two dots and more, a newline, bytes that are no UTF-8 are names.
{ file ..config && file 'line\nbreak' && link up ../../../etc/passwd; } > "$T/message"
message=$(put "$T/message")
sandbox=$(sandbox_new "$message" --id odd)
eq "..config" text "$(cat "$sandbox/..config")"
"$FSCHECK" readlink "$sandbox/up" ../../../etc/passwd
eq "entries" 3 "$(find "$sandbox" -mindepth 1 -print0 | tr -cd '\0' | wc -c)"
casbox checkout "$message" "$T/dest"
"$FSCHECK" readlink "$T/dest/up" ../../../etc/passwd
casbox sandbox remove odd

# A child that is absent, or a file's content.
dir gone "$(printf 'ab%.0s' $(seq 32))" 7 > "$T/message"
sandbox=$(sandbox_new "$(put "$T/message")" --id gone || :)
[ -z "$sandbox" ] || "$FSCHECK" call 'EIO|ENOENT' opendir "$sandbox/gone"
expect 1 casbox checkout "$(put "$T/message")" "$T/dest-gone"
[ ! -e "$T/dest-gone" ] || fail "half a tree checked out"
eq "the mount answers" text "$(cat "$MNT/cas/file/$(dashed "$blob")")"
mount_stop
