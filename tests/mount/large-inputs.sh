#!/bin/sh
# tests/mount/large-inputs.sh - large inputs are mounts of their own, and nothing else about them differs
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

# Paths below $MNT/sandboxes/$1 that are such mounts.
bound() {
	# Until somebody looks, its mounts are named by where its root lay before.
	[ -d "$MNT/sandboxes/$1" ]
	mounts_below "$MNT/sandboxes/$1" | sort | while read -r at; do
		[ ! -f "$at" ] || printf '%s ' "${at#"$MNT/sandboxes/$1/"}"
	done
}

# bound_is WHAT ID NAME...: none where the kernel cannot read blobs by itself.
bound_is() {
	what=$1
	id=$2
	shift 2
	[ "$large" = yes ] || set --
	eq "$what: bound" "${*:+$* }" "$(bound "$id")"
}

# Everything about a tree but devices, and access times, which are nobody's promise.
state() {
	(cd "$1" && find . ! -path './out*' ! -path . -printf '%p %y %i %s %b %m %n %U %G %T@ %l\n' | sort)
}

reads() {
	casbox ctl stats | sed "s/.*\"$1\"//" | grep -o '"READ":[0-9]*' | head -n 1 | sed 's/.*://'
}

same_as_without() {
	mount_start --large 0
	grep -qx "large = no (.*)" "$MNT/.casbox/config" || fail "config does not say that there are none"
	state "$(sandbox_new "$root" --id plain)" > "$T/plain"
	large=no
	bound_is "told not to" plain
	mount_stop
	mount_start --large 1M
	large=$(sed -n 's/^large = //p' "$MNT/.casbox/config")
	box=$(sandbox_new "$root" --id one --output out/)
	bound_is "by size" one d/big d/preserved d/tool e/big
	state "$box" | diff "$T/plain" - || fail "attributes with and without mounts"
	trees_equal "$T/ref" "$box"
	eq "the program" ran "$("$box/d/tool" | head -n 1)"
	before=$(reads one)
	cat "$box/d/big" "$box/d/preserved" "$box/d/tool" "$box/e/big" > /dev/null
	[ "$large" != yes ] || eq "reads of large files" "$before" "$(reads one)"
	"$FSCHECK" mmap-last "$box/d/big" "$(tail -c 1 "$T/tree/d/big" | od -An -tu1 | tr -d ' ')"
	"$FSSTRESS" mixed-opens "$box/e/big" "$T/tree/e/big" || fail "opened in many ways"
	[ ! "$box/d/big" -ef "$box/e/big" ] || fail "two places are one file"
	for f in d/big d/tool e/big; do
		"$FSCHECK" refuses "$box/$f" "EROFS|EBUSY"
	done
	trees_equal "$T/ref" "$box"
	"$FSCHECK" call ENOENT stat "$MNT/.casbox/large/$(basename "$(grep -o '/.casbox/large/[^ ]*' /proc/self/mountinfo | head -n 1)")x"
	casbox sandbox remove one
}

# Over an overlay, and not where an action may replace them.
policies() {
	box=$(sandbox_new "$root" --id beside --output d/new.o --output e)
	bound_is "beside inputs" beside d/big d/preserved d/tool
	echo object > "$box/d/new.o"
	cmp "$T/tree/d/big" "$box/d/big"
	[ "$large" != yes ] || "$FSCHECK" refuses "$box/d/big" "EROFS|EBUSY"
	rm -rf "$box/e"
	echo mine > "$box/e"
	casbox sandbox finish beside > "$T/finish" || fail "finish beside large inputs"
	eq "captured" object "$(casbox cat "$(sed -n 's|^d/new.o\t||p' "$T/finish")")"
	eq "captured in the place of inputs" mine "$(casbox cat "$(sed -n 's|^e\t||p' "$T/finish")")"
	bound_is "finished" beside
	cmp "$T/tree/d/big" "$MNT/sandboxes/beside/d/big"
	casbox sandbox remove beside

	box=$(sandbox_new "$root" --id dirs --writable dirs --output o)
	bound_is "dirs" dirs d/big d/preserved d/tool e/big
	echo new > "$box/d/new"
	cp "$box/d/big" "$box/o"
	casbox sandbox finish dirs > "$T/finish" 2> "$T/err" || fail "finish under dirs"
	eq "a copy" "$(put "$T/tree/d/big")" "$(sed -n 's|^o\t||p' "$T/finish")"
	casbox sandbox remove dirs

	box=$(sandbox_new "$root" --id all --writable all)
	bound_is "all" all
	echo changed > "$box/d/big"
	rm "$box/e/big"
	eq "replaced" changed "$(cat "$box/d/big")"
	casbox sandbox remove all
	box=$(sandbox_new "$root" --id whole --output '')
	bound_is "the whole root is an output" whole
	casbox sandbox remove whole
}

# One root after the other in a slot: another file, a directory, nothing at its place.
slots() {
	cp -a "$T/ref" "$T/ref2"
	tr 'a-y' 'b-z' < "$T/tree/d/big" > "$T/other"
	cat "$T/other" > "$T/ref2/d/big"
	rm "$T/ref2/e/big" "$T/ref2/d/tool"
	mkdir "$T/ref2/e/big"
	echo inside > "$T/ref2/e/big/file"
	rm -r "$T/ref2/out"
	two=$(put --preserve "$T/ref2")
	mkdir "$T/ref2/out"
	for round in 1 2 3; do
		box=$(sandbox_new "$root" --id one --output out/)
		bound_is "round $round" one d/big d/preserved d/tool e/big
		trees_equal "$T/ref" "$box"
		casbox sandbox remove one
		box=$(sandbox_new "$two" --id two --output out/)
		bound_is "round $round" two d/big d/preserved
		trees_equal "$T/ref2" "$box"
		casbox sandbox remove two
	done
	reused=$(casbox ctl config | sed 's/.*"reused":\([0-9]*\).*/\1/')
	[ "$large" != yes ] || [ "$reused" -ge 5 ] || fail "only $reused slots were used again"

	# Removed while open and mapped: what is open stays what it was.
	box=$(sandbox_new "$root" --id one --output out/)
	exec 5< "$box/d/big"
	busy=$(casbox ctl config | sed 's/.*"busy":\([0-9]*\).*/\1/')
	casbox sandbox remove one
	box=$(sandbox_new "$two" --id one --output out/)
	trees_equal "$T/ref2" "$box"
	cmp "$T/tree/d/big" - <&5 || fail "open while its sandbox was removed"
	exec 5<&-
	eq "in use when removed" "$((busy + 1))" "$(casbox ctl config | sed 's/.*"busy":\([0-9]*\).*/\1/')"
	casbox sandbox remove one
}

killed() {
	box=$(sandbox_new "$root" --id one --output out/)
	echo kept > "$box/out/file"
	exec 5< "$box/d/big"
	mount_kill
	mount_start --large 1M
	bound_is "mounted again" one d/big d/preserved d/tool e/big
	trees_equal "$T/tree/d" "$box/d"
	eq "output" kept "$(cat "$box/out/file")"
	exec 5<&-
	casbox sandbox finish one > "$T/finish"
	casbox sandbox remove one
}

# So many that only the largest count; and a tree that takes long to search.
many() {
	mkdir "$T/many" "$T/deep"
	for i in $(seq 30); do
		head -c $((1048576 + (i * 7) % 30 * 4096)) /dev/zero > "$T/many/$i"
	done
	many=$(put "$T/many")
	box=$(sandbox_new "$many" --id many)
	eq "as many as there may be" "$([ "$large" = yes ] && echo 16 || echo 0)" \
		"$(bound many | wc -w)"
	diff -r "$T/many" "$box"
	casbox sandbox remove many

	for i in $(seq 300); do
		mkdir -p "$T/deep/$i/x"
		echo "$i" > "$T/deep/$i/x/f"
	done
	cp "$T/tree/d/big" "$T/deep/200/x/big"
	deep=$(put "$T/deep")
	box=$(sandbox_new "$deep" --id deep)
	bound_is "new, too many to look at" deep
	cmp "$T/tree/d/big" "$box/200/x/big"
	casbox sandbox remove deep
	[ "$large" = yes ] || return 0
	for _ in $(seq 200); do
		box=$(sandbox_new "$deep" --id deep)
		[ -z "$(bound deep)" ] || break
		casbox sandbox remove deep
	done
	bound_is "after it was looked at" deep 200/x/big
	cmp "$T/tree/d/big" "$box/200/x/big"
	casbox sandbox remove deep
}

body() {
	mkdir -p "$T/tree/d" "$T/tree/e" "$T/tree/f"
	head -c 400000 /dev/urandom | od -An -tx1 > "$T/tree/d/big"
	cp "$T/tree/d/big" "$T/tree/e/big"
	(printf '#!/bin/sh\necho ran\nexit\n' && head -c 1500000 /dev/urandom) > "$T/tree/d/tool"
	head -c 3000000 /dev/urandom > "$T/tree/d/preserved"
	head -c 1000000 /dev/urandom > "$T/tree/f/small"
	chmod 755 "$T/tree/d/tool"
	chmod 640 "$T/tree/d/preserved"
	touch -d '2021-02-03 04:05:06.789' "$T/tree/d/preserved"
	root=$(put --preserve "$T/tree")
	cp -a "$T/tree" "$T/ref"
	mkdir "$T/ref/out"
	same_as_without
	policies
	slots
	killed
	many
	mount_stop
	for without in large passthrough; do
		mount_start --without $without --large 1M
		grep -q "^large = no " "$MNT/.casbox/config" || fail "config does not say no"
		large=no
		box=$(sandbox_new "$root" --id one --output out/)
		bound_is "without $without" one
		trees_equal "$T/ref" "$box"
		casbox sandbox remove one
		mount_stop
	done
}
each_user body
