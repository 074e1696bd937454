#!/bin/sh
# tests/crash/put-killed.sh - a put killed anywhere leaves nothing half and loses nothing
. "$(dirname "$0")/../lib/common.sh"

sample_tree "$T/tree"
root=$(put "$T/tree")
mkdir "$T/acknowledged"
i=0
for delay in 0.001 0.002 0.004 0.006 0.008 0.01 0.012 0.015 0.02 0.03 0.05 0.1; do
	i=$((i + 1))
	mkdir "$T/files"
	for n in $(seq 200); do
		head -c 3000 /dev/urandom > "$T/files/$n"
	done
	echo "kept $i" > "$T/acknowledged/$i"
	kept=$(put "$T/acknowledged/$i")
	"$CASBOX" put "$T/files" > "$T/digest" 2> /dev/null &
	pid=$!
	sleep "$delay"
	kill -9 "$pid" 2> /dev/null || :
	wait "$pid" 2> /dev/null || :

	expect 0 casbox fsck
	eq "acknowledged before" "kept $i" "$(casbox cat "$kept")"
	if [ -s "$T/digest" ]; then
		casbox checkout "$(cat "$T/digest")" "$T/co"
		trees_equal "$T/files" "$T/co"
		rm -rf "$T/co"
	fi
	casbox checkout "$(put "$T/files")" "$T/co"
	trees_equal "$T/files" "$T/co"
	rm -rf "$T/co" "$T/files"
done
eq "the tree of the start" "$root" "$(put "$T/tree")"
