#!/bin/sh
# what is put and captured reaches the writable tiers: outputs first, and only what is missing
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
write="$URL?write=yes&tries=1"
at_server() { [ -e "$T/http/data/cache/cas/${1%/*}" ]; }
puts() { grep -c "^PUT /cache/cas/" "$T/http/log" || :; }

# put writes through: it ends when everything is there, Directories after what they name.
mkdir -p "$T/tree/a/b" "$T/tree/c"
seq 3000 > "$T/tree/a/b/file"
cp "$T/tree/a/b/file" "$T/tree/c/same"
echo top > "$T/tree/top"
root=$(casbox --tier "$write" put "$T/tree")
eq "blobs sent: two files, four Directories" 6 "$(puts)"
eq "the last one sent" "${root%/*}" "$(sed -n 's|^PUT /cache/cas/\([0-9a-f]*\) .*|\1|p' "$T/http/log" | tail -n 1)"
eq "left in the outbox" 0 "$(ls "$STORE/outbox" | wc -l)"
casbox --tier "$write" put "$T/tree" > /dev/null
eq "blobs sent again" 6 "$(puts)"

# Others find it there.
casbox --store "$T/other" --tier "$URL" checkout "$root" "$T/laid"
diff -r "$T/tree" "$T/laid" || fail "another tree"

# A tier that is away is told, and gets it with the next command.
port=$(cat "$T/http/port")
echo later > "$T/later"
expect 0 casbox --tier "http://127.0.0.1:1/cache?write=yes&tries=1" put "$T/later"
said "stored, but not sent"
later=$(cat "$T/out")
eq "left in the outbox" 1 "$(ls "$STORE/outbox" | wc -l)"
# gc leaves it alone.
casbox gc --max-size 0 > /dev/null
casbox cat "$later" | cmp - "$T/later" || fail "gc took what is still to be sent"
casbox --tier "$write" push > /dev/null
at_server "$later" || fail "not sent later"
eq "left in the outbox" 0 "$(ls "$STORE/outbox" | wc -l)"

# One that will never take it is no reason to forget the other, which is away.
mkdir "$T/never"
mount --bind "$T/never" "$T/never"
mount -o remount,bind,ro "$T/never"
echo both > "$T/both"
expect 0 casbox --tier "file://$T/never?write=yes&tries=1" \
	--tier "http://127.0.0.1:1/cache?write=yes&tries=1" put "$T/both"
said "stored, but not sent"
both=$(cat "$T/out")
umount "$T/never"
eq "left in the outbox" 1 "$(ls "$STORE/outbox" | wc -l)"
casbox --tier "$write" push > /dev/null
at_server "$both" || fail "not sent to the second"

# Outputs of a sandbox, by the daemon.
root=$(casbox --tier "$write" put "$T/tree")
mount_start --tier "$write"
sandbox=$(sandbox_new "$root" --id one --output out/ --output new)
mkdir "$sandbox/out/deep"
echo made > "$sandbox/out/deep/made"
echo new > "$sandbox/new"
casbox sandbox finish one > "$T/finished"
dir=$(sed -n 's|^out/*\t||p' "$T/finished")
file=$(sed -n 's|^new\t||p' "$T/finished")
await at_server "$dir"
await at_server "$file"
empty() { [ "$(ls "$STORE/outbox" | wc -l)" -eq 0 ]; }
await empty
mount_stop
casbox --store "$T/third" --tier "$URL" checkout "$dir" "$T/outputs"
eq "what was made" made "$(cat "$T/outputs/deep/made")"

# push and pull, as far as they got before.
casbox put "$T/tree" > /dev/null
rm "$T/http/data/cache/cas/"*
before=$(puts)
expect 0 casbox --tier "$write" push "$root"
grep -q "in 6 blobs, 0 were there" "$T/out" || fail "$(cat "$T/out")"
eq "blobs sent" $((before + 6)) "$(puts)"
rm "$T/http/data/cache/cas/${root%/*}"
expect 0 casbox --tier "$write" push --json "$root"
grep -q '"known": *5' "$T/out" || fail "$(cat "$T/out")"
eq "blobs sent" $((before + 7)) "$(puts)"
asked=$(gets)
expect 0 casbox --store "$T/fourth" --tier "$URL" pull "$root"
eq "blobs asked for" $((asked + 6)) "$(gets)"
casbox --store "$T/fourth" checkout "$root" "$T/pulled"
diff -r "$T/tree" "$T/pulled" || fail "another tree was pulled"
expect 0 casbox --store "$T/fourth" --tier "$URL" pull "$root"
eq "blobs asked for again" $((asked + 6)) "$(gets)"
expect 2 casbox push "$root"
expect 2 casbox --tier "$URL" push "$root"
said "write=yes"
