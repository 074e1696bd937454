#!/bin/sh
# what a sandbox has read is fetched for the next one of its kind before it is asked for
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

# learned FIELD: as stats tell it.
learned() {
	"$CASBOX" ctl --mount "$MNT" stats | tr -d ' ' |
		sed -n 's/.*"learned":{\([^}]*\)}.*/,\1,/p' | sed -n "s/.*,\"$1\":\([0-9.]*\),.*/\1/p"
}
is() { [ "$(learned "$1")" = "$2" ]; }
# Everything that is here goes, but not what was learned.
forget() {
	casbox gc --max-size 0 > "$T/gc"
	: > "$T/http/log"
}
# got PATH...: these were asked for, each once.
asked() {
	for path in "$@"; do
		[ "$(gets "$(sha256sum < "$T/tree/$path" | cut -d' ' -f1)/0")" -eq 1 ] || return 1
	done
}

mkdir -p tree/src/deep/er tree/lib tree/unused
for i in $(seq 20); do
	echo "source $i" > "tree/src/deep/er/$i"
	echo "library $i" > "tree/lib/$i"
	echo "unused $i" > "tree/unused/$i"
done
echo top > tree/top
one=$(far_put "$T/tree")
wanted=$(cd tree && echo top lib/7 src/deep/er/*)
work() { (cd "$1" && cat $wanted > "$T/read") && (cd "$T/tree" && cat $wanted) | cmp - "$T/read"; }

mount_start --tier "$URL"
work "$(sandbox_new "$one" --id one --output out)"
await is unforeseen 22
eq "foreseen" 0 "$(learned foreseen)"
casbox sandbox remove one
await is habits 1
mount_stop

# Another root, in which a file has changed, and one that was read is gone.
echo "source 5, changed" > tree/src/deep/er/5
rm tree/src/deep/er/6
wanted=$(cd tree && echo top lib/7 src/deep/er/*)
two=$(far_put "$T/tree")
forget
mount_start --tier "$URL"
box=$(sandbox_new "$two" --id two --output out)
await asked $wanted
eq "others" 0 "$(gets "$(sha256sum < tree/unused/1 | cut -d' ' -f1)/0")"
work "$box"
asked $wanted || fail "asked for again: $(cat "$T/http/log")"
await is used 21
eq "foreseen" 21 "$(learned foreseen)"
eq "unforeseen" 0 "$(learned unforeseen)"
# What is new is learned, too.
eq "new" "unused 3" "$(cat "$box/unused/3")"
await is unforeseen 1
casbox sandbox finish two > finished
casbox sandbox remove two
await is unused 0
mount_stop

# Other outputs, but a root as like as can be: what that kind has read.
forget
mount_start --tier "$URL"
box=$(sandbox_new "$two" --id three --output other)
await asked $wanted unused/3
casbox sandbox remove three
await is unused 22
mount_stop

# A killed daemon has kept it; what is no habit is put away.
[ "$(ls "$STORE/run/habits" | wc -l)" -eq 1 ] || fail "habits: $(ls "$STORE/run/habits")"
echo humbug > "$STORE/run/habits/0123456789abcdef0123456789abcdef"
forget
mount_start --tier "$URL"
[ ! -e "$STORE/run/habits/0123456789abcdef0123456789abcdef" ] || fail "humbug was kept"
box=$(sandbox_new "$two" --id four --output out)
await asked $wanted unused/3
work "$box"
await is used 21
casbox sandbox remove four
await is unused 1
eq "precision" 0.95 "$(learned precision | cut -c1-4)"
mount_stop

# Neither is what is too large for one, nor a file in the place of them all.
truncate -s 17M "$STORE/run/habits/0123456789abcdef0123456789abcdef"
mkdir "$STORE/run/habits/1123456789abcdef0123456789abcdef"
mount_start --tier "$URL"
eq "habits" 1 "$(ls "$STORE/run/habits" | wc -l)"
mount_stop
rm -r "$STORE/run/habits"
echo humbug > "$STORE/run/habits"
mount_start --tier "$URL"
work "$(sandbox_new "$two" --id five --output out)"
casbox sandbox remove five
await is habits 1
mount_stop
eq "habits kept" 1 "$(ls "$STORE/run/habits" | wc -l)"
