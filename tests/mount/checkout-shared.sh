#!/bin/sh
# tests/mount/checkout-shared.sh - what is done to one hardlink check-out stays there (C01, C02)
. "$(dirname "$0")/../lib/common.sh"

mkdir -p "$T/tree/dir"
printf '#!/bin/sh\necho original\n' > "$T/tree/dir/tool"
chmod 755 "$T/tree/dir/tool"
echo data > "$T/tree/dir/data"
root=$(put "$T/tree")
tool=$(put "$T/tree/dir/tool")
data=$(put "$T/tree/dir/data")
blob=$(blob_path "$tool")
stat -c '%a %u %g %Y %Z %h %i' "$blob" > "$T/blob"

# A put shares no inode with its source.
: > "$T/tree/dir/data"
printf 'new ' >> "$T/tree/dir/data"
eq "the blob after its source was overwritten" data "$(casbox cat "$data")"

casbox checkout --mode hardlink "$root" "$T/a"
casbox checkout --mode hardlink "$root" "$T/b"
[ "$T/a/dir/tool" -ef "$T/b/dir/tool" ] || fail "the check-outs are not linked"
[ ! "$T/a/dir/tool" -ef "$blob" ] || fail "a check-out is the blob itself"
[ ! "$T/a/dir/data" -ef "$(blob_path "$data")" ] || fail "a check-out is the blob itself"
"$FSCHECK" stat "$T/b/dir/tool" mode=0555
"$FSCHECK" stat "$T/b/dir/data" mode=0444

# Removing one that had its directories closed.
chmod -R a-w "$T/a"
chmod -R u+w "$T/a/dir"
chmod u+w "$T/a"
rm -rf "$T/a"
eq "the other one" original "$("$T/b/dir/tool")"
stat -c '%a %u %g %Y %Z %h %i' "$blob" | diff "$T/blob" - || fail "the blob changed"

# What a user does to a linked file is found before the next link and by fsck.
again=0
for harm in 'chmod 644' 'touch -d @1' 'truncate -s 3' 'sed -i s/original/changed/' 'append'; do
	again=$((again + 1))
	casbox checkout --mode hardlink "$root" "$T/c$again"
	if [ "$harm" = append ]; then
		chmod u+w "$T/c$again/dir/tool"
		echo 'echo more' >> "$T/c$again/dir/tool"
	else
		$harm "$T/c$again/dir/tool"
	fi
	stat -c '%a %u %g %Y %Z %h %i' "$blob" | diff "$T/blob" - || fail "$harm: the blob changed"
	casbox checkout --mode hardlink "$root" "$T/d$again"
	eq "$harm: a later check-out" original "$("$T/d$again/dir/tool")"
	"$FSCHECK" stat "$T/d$again/dir/tool" mode=0555
	eq "$harm: the blob" "$tool" "$(put "$T/d$again/dir/tool")"
done
