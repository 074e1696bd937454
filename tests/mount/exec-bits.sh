#!/bin/sh
# tests/mount/exec-bits.sh - one blob, executable here and plain there (C11)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir "$T/both" "$T/exec" "$T/plain"
printf '#!/bin/sh\necho it runs\n' > "$T/both/y"
chmod 644 "$T/both/y"
install -m 755 "$T/both/y" "$T/both/x"
cp -p "$T/both/x" "$T/exec/tool"
cp -p "$T/both/y" "$T/plain/tool"
both=$(put "$T/both")
exec=$(put "$T/exec")
plain=$(put "$T/plain")
blob=$(put "$T/both/y")
eq "one digest" "$blob" "$(put "$T/both/x")"

mount_start
b=$(sandbox_new "$both")
e=$(sandbox_new "$exec")
p=$(sandbox_new "$plain")
for _ in 1 2 3; do
	eq "x" "it runs" "$("$b/x")"
	"$FSCHECK" call EACCES exec-access "$b/y"
	eq "tool" "it runs" "$("$e/tool")"
	"$FSCHECK" call EACCES exec-access "$p/tool"
	eq "executable view" "it runs" "$("$MNT/cas/executable/$(dashed "$blob")")"
	"$FSCHECK" call EACCES exec-access "$MNT/cas/file/$(dashed "$blob")"
done
"$FSCHECK" stat "$MNT/cas/executable/$(dashed "$blob")" mode=0555
"$FSCHECK" stat "$MNT/cas/file/$(dashed "$blob")" mode=0444
mount_stop

# Check-outs of both, four at a time, in every way.
for how in copy hardlink; do
	for i in 1 2 3 4; do
		(
			casbox checkout --mode "$how" "$exec" "$T/e-$how-$i"
			casbox checkout --mode "$how" "$plain" "$T/p-$how-$i"
			[ "$("$T/e-$how-$i/tool")" = "it runs" ]
			"$FSCHECK" call EACCES exec-access "$T/p-$how-$i/tool"
		) > "$T/co-$how-$i" 2>&1 &
		eval "pid$i=$!"
	done
	# shellcheck disable=SC2154
	for pid in "$pid1" "$pid2" "$pid3" "$pid4"; do
		wait "$pid" || fail "check-out by $how: $(cat "$T"/co-*)"
	done
done
"$FSCHECK" stat "$(blob_path "$blob")" mode=0444
eq "digest of a tree checked out" "$exec" "$(put "$T/e-copy-1")"
expect 0 casbox fsck
