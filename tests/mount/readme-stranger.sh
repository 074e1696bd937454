#!/bin/sh
# The session of the README, "With a mount and a shell", line by line: what a stranger types who has
# the mount and no program of ours gives what is printed there, digests and times aside.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount cc

README=$HERE/../../README.md

# What differs from one day to the next.
same_for_all() {
	sed -e 's/[0-9a-f]\{64\}[/-][0-9]*/DIGEST/g' -e 's/"time":"[^"]*"/"time":"TIME"/' \
		-e 's/\("trace":"exact"\),.*}]}$/\1,...}]}/'
}

mkdir -p "$T/tree/include"
printf '#include <used.h>\n#include "config.h"\nint main(void) { return USED; }\n' > "$T/tree/main.c"
echo '#define USED 0' > "$T/tree/include/used.h"
echo '#define UNUSED' > "$T/tree/include/unused.h"
mount_start
box=$(sandbox_new "$(put "$T/tree")" --id nightly --output out/ --trace exact)
eq "path" "$MNT/traced/nightly" "$box"
got=0
(cd "$box" && cc -Iinclude -o out/prog main.c) 2> "$T/cc" || got=$?
[ "$got" -ne 0 ] || fail "the build was to fail"
grep -q 'config\.h' "$T/cc" || fail "it failed otherwise: $(cat "$T/cc")"

sed -n '/^### With a mount and a shell$/,/^`echo .explain HASH/s/^    //p' "$README" > "$T/printed"
[ "$(grep -c '^\$ ' "$T/printed")" -ge 7 ] || fail "no session in the README"
# Each line is told, then run, all by one shell.
sed -n "s/^\\$ //p" "$T/printed" | while IFS= read -r line; do
	printf "cat <<'END'\n\$ %s\nEND\n%s\n" "$line" "$line"
done > "$T/typed"
within 20 env -i PATH="$PATH" sh -eu "$T/typed" > "$T/got" 2>&1 || fail "a line fails: $(cat "$T/got")"
same_for_all < "$T/printed" > "$T/want"
same_for_all < "$T/got" > "$T/is"
diff "$T/want" "$T/is" > "$T/diff" || fail "it is not as printed: $(cat "$T/diff")"

# Where a blob is, by its hash, which sha256sum tells.
line=$(sed -n 's/^`\(echo .explain HASH.*\)` tells where.*/\1/p' "$README")
hash=$(sha256sum < "$box/include/unused.h")
hash=${hash%% *}
line=$(printf '%s\n' "$line" | sed "s/HASH/$hash/")
(cd "$MNT/.casbox" && within 20 env -i PATH="$PATH" sh -euc "exec 9<> control; $line") > "$T/out" ||
	fail "explain: $(cat "$T/out")"
for text in '{"ok":true,' "It lies at $(blob_path "$hash/0"), mode 0444" \
	'It was put here, not brought from a tier' 'nightly (input) include/unused.h'; do
	grep -qF -e "$text" "$T/out" || fail "explain lacks '$text': $(cat "$T/out")"
done
eq "lines of the answer" 1 "$(wc -l < "$T/out")"
# And by what help says: its bytes.
eq "bytes" '#define UNUSED' "$(cat "$MNT/cas/file/$hash-15")"
casbox sandbox remove nightly
mount_stop
