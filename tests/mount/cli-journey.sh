#!/bin/sh
# tests/mount/cli-journey.sh - put, mount, create, write, finish, remove, by the printed words
. "$(dirname "$0")/../lib/common.sh"
need root fuse

mkdir -p in/src
echo 'hello' > in/src/a.txt
root=$(put in)
casbox mount mnt > mounted
eq "what mount prints" "" "$(cat mounted)"
path=$(casbox sandbox create --root "$root" --id job-1 --output out/ --output src/b --output src/l)
eq "path of the sandbox" "$MNT/sandboxes/job-1" "$path"
eq "input" hello "$(cat "$path/src/a.txt")"
echo made > "$path/out/f"
echo beside > "$path/src/b"
ln -s a.txt "$path/src/l"

casbox sandbox finish job-1 > first
tab=$(printf '\t')
eq "outputs" "out src/b src/l" "$(cut -f 1 first | sort | paste -sd ' ')"
eq "link" "-> a.txt" "$(sed -n "s|^src/l$tab||p" first)"
eq "file" "$(echo beside | sha256sum | cut -d ' ' -f 1)/7" "$(sed -n "s|^src/b$tab||p" first)"
dir=$(sed -n "s|^out$tab||p" first)
eq "directory" "f" "$(casbox ls "$dir")"
casbox sandbox finish job-1 > second
cmp first second || fail "finishing twice answers twice"
casbox sandbox finish --json job-1 > result
grep -q '"outputSymlinks":\[{"path":"src/l","target":"a.txt"}\]' result || fail "$(cat result)"

eq "list" "job-1${tab}finished${tab}$root" "$(casbox sandbox list)"
casbox sandbox remove job-1
eq "list" "" "$(casbox sandbox list)"
expect 1 casbox sandbox show job-1
said job-1
[ ! -e "$path" ] || fail "the sandbox is still there"

expect 1 casbox sandbox create --root "$root" --output ../escape
said ../escape
expect 2 casbox sandbox create --output x
expect 0 casbox ctl version
grep -q '"ok":true' out || fail "$(cat out)"
expect 1 casbox ctl no-such-command
grep -q '"ok":false' out || fail "$(cat out)"

# What was captured just before the end is counted after it.
path=$(casbox sandbox create --root "$root" --id job-2 --output out/)
echo late > "$path/out/g"
casbox sandbox finish job-2 > /dev/null
expect 0 casbox umount
eq "blobs counted" "$(find "$STORE/cas" -type f | wc -l)" \
	"$(casbox stat | sed -n 's/^blobs *//p')"
expect 1 casbox umount
said "no mount serves the store"
expect 1 casbox umount "$MNT"
said "nothing is mounted at $MNT"
expect 1 casbox sandbox list
said "casbox mount MNT"
