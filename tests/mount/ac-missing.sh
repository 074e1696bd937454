#!/bin/sh
# tests/mount/ac-missing.sh - a result whose tree is gone: an error, not a name that is not there
. "$(dirname "$0")/../lib/common.sh"
need fuse python3

mkdir tree
root=$(put tree)
python3 "$HERE/../lib/reapi.py" command cmd arg=sh arg=-c 'arg=mkdir d; echo made > d/f; echo one > f' \
	env=PATH=/usr/bin:/bin out=d out=f
python3 "$HERE/../lib/reapi.py" action act "$(put cmd)" "$root"
act=$(put act)
mount_start
casbox run --action "$act" --result result > /dev/null
tree=$(python3 -c 'import json; print(json.load(open("result"))["outputDirectories"][0]["treeDigest"]["hash"])')
mount_stop
rm -f "$(blob_path "$tree/0")"
mount_start
at=$MNT/ac/${act%/*}/outputs
eq "names" "d f" "$(ls "$at" | paste -sd ' ')"
expect 1 stat "$at/d"
said "Input/output error"
eq "the other" one "$(cat "$at/f")"
grep -q "output d of a result: its tree $tree" daemon.log || fail "not said: $(cat daemon.log)"
mount_stop
