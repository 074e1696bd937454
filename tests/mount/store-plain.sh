#!/bin/sh
# tests/mount/store-plain.sh - sandboxes of a store whose filesystem knows neither O_TMPFILE
# nor a rename that refuses to replace
. "$(dirname "$0")/../lib/common.sh"
need root fuse

mkdir under tree tree/src
mkdir store
"$LATFS" --no-flags under store > latfs.log 2>&1 &
await mountpoint -q store
echo input > tree/src/in
root=$(put tree)
mount_start
box=$(sandbox_new "$root" --id one --output out/)
eq "an input" input "$(cat "$box/src/in")"
echo made > "$box/out/made"
expect 1 casbox sandbox create --root "$root" --id one --output out/ --mount "$MNT"
said one
casbox sandbox finish one > finished
casbox checkout "$(sed -n 's|^out/*	||p' finished)" back
eq "an output" made "$(cat back/made)"
casbox sandbox remove one

# The kernel's overlay cannot lie there, which is said; our own can.
expect 1 casbox sandbox create --root "$root" --id two --output src/obj --mount "$MNT"
said "cannot create the overlay" "--engine fuse"
eq "sandboxes" "" "$(ls "$MNT/sandboxes")"
mount_stop
mount_start --engine fuse
box=$(sandbox_new "$root" --id two --output src/obj)
mkdir "$box/src/obj"
echo made > "$box/src/obj/made"
mv "$box/src/obj/made" "$box/src/obj/moved"
casbox sandbox finish two > finished
casbox checkout "$(sed -n 's|^src/obj	||p' finished)" again
eq "an output beside inputs" made "$(cat again/moved)"
mount_stop
