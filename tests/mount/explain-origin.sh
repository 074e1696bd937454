#!/bin/sh
# tests/mount/explain-origin.sh - explain tells which tier a blob came from, whoever brought it
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/tier.sh"
need fuse mount

says() {
	for text in "$@"; do
		grep -qF -e "$text" "$T/out" || fail "explain lacks '$text': $(cat "$T/out")"
	done
}

mkdir -p tree/sub
echo one > tree/a
echo two > tree/sub/b
echo three > tree/sub/c
other=$T/other
first=$(casbox --store "$other" put tree)
one=$(casbox --store "$other" put tree/a)
two=$(casbox --store "$other" put tree/sub/b)
three=$(casbox --store "$other" put tree/sub/c)
tier=file://$other

# By the daemon, when somebody reads.
mount_start --tier "$tier"
eq "read" one "$(cat "$MNT/cas/directory/$(dashed "$first")/a")"
expect 0 casbox explain "$one"
says "It came from the tier $tier on "
expect 0 casbox explain "$first"
says "is a Directory of" "It came from the tier $tier"
# One that is not here yet, and one that was put here.
expect 0 casbox --tier "$tier" explain "$two"
says "It is not in this store; who opens it asks the tiers"
echo mine > mine
mine=$(put mine)
expect 0 casbox explain "$mine"
says "It was put here, not brought from a tier"
# A sandbox that waits for a blob.
sandbox_new "$first" --id waits > /dev/null
eq "read in a sandbox" two "$(cat "$MNT/sandboxes/waits/sub/b")"
casbox sandbox finish waits > /dev/null
expect 0 casbox explain waits
says "of that waiting, " "of that first touches: "
casbox sandbox remove waits
mount_stop

# By a command, whose rows wait or go to a daemon.
expect 0 casbox --tier "$tier" pull --blob "$three"
expect 0 casbox explain "$three"
says "It came from the tier $tier"
casbox explain --json "$three" | grep -q "\"source\": *\"$tier\"" || fail "JSON: $(casbox explain --json "$three")"
# Evicted and put: it is ours now.
expect 0 casbox gc --max-size 0
put tree/sub/c > /dev/null
expect 0 casbox explain "$three"
says "It was put here"
