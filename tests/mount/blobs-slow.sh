#!/bin/sh
# tests/mount/blobs-slow.sh - puts into a slow directory: changes counted, acknowledged before
. "$(dirname "$0")/../lib/common.sh"
need root fuse

NR=200
mkdir "$T/back" "$T/slow" "$T/tree"
for n in $(seq $NR); do
	echo "blob $n" > "$T/tree/$n"
done
slow_start() {
	"$LATFS" "$@" "$T/back" "$T/slow" &
	LATFS_PID=$!
	await mountpoint "$T/slow"
}
slow_stop() {
	umount "$T/slow"
	wait "$LATFS_PID" || :
}
changes() {
	awk -v what="$1" '{ n = $2 ~ what ? n + $1 : n } END { print n + 0 }' "$T/slow/.counts"
}
export CASBOX_BLOBS="$T/slow"

# --no-flags: as NFS, which cannot rename without replacing.
for flags in '' --no-flags; do
	rm -rf "$T/back" "$STORE"
	mkdir "$T/back"
	# shellcheck disable=SC2086
	slow_start --mutation-us 5000 --lookup-us 200 $flags
	root=$(put "$T/tree")
	blobs=$(find "$T/back/cas" -type f | wc -l)
	eq "blobs" $((NR + 1)) "$blobs"
	eq "changes of shards" $((2 * blobs)) "$(changes '/cas/../$')"
	[ "$(changes '/cas/$')" -le 256 ] || fail "changes beside shards: $(changes '/cas/$')"

	# Known: by the index, and to a store that knows nothing.
	: > "$T/slow/.counts"
	eq "the same tree" "$root" "$(put "$T/tree")"
	eq "the same tree in another store" "$root" "$(put --store "$T/other$flags" "$T/tree")"
	eq "changes for known blobs" "" "$(cat "$T/slow/.counts")"
	slow_stop
done

# A put is over for the client long before the directory has it.
rm -rf "$T/back" "$STORE"
mkdir "$T/back"
slow_start --mutation-us 300000
echo new > "$T/new"
: > "$T/digest"
"$CASBOX" put "$T/new" > "$T/digest" &
pid=$!
await test -s "$T/digest"
[ -z "$(find "$T/back/cas" -type f -name '[0-9a-f]*')" ] || fail "the directory was waited for"
eq "read meanwhile" new "$(casbox cat "$(cat "$T/digest")")"
wait "$pid" || fail "put: status $?"
eq "blobs moved in the end" 1 "$(find "$T/back/cas" -type f -name '[0-9a-f]*' | wc -l)"
slow_stop

# The spool's limit, here from the store's configuration: puts wait for the movers.
most_spooled() {
	most=0
	while [ ! -s "$T/status" ]; do
		now=$(find "$STORE/spool" -path '*/??/*' -name '[0-9a-f]*' 2> /dev/null | wc -l)
		[ "$now" -le "$most" ] || most=$now
	done
	echo "$most"
}
for limit in '' 'spool-max-count = 2' 'spool-max-bytes = 20'; do
	rm -rf "$T/back" "$STORE" "$T/few"
	mkdir "$T/back" "$T/few"
	: > "$T/status"
	for n in $(seq 8); do
		echo "blob no. $n" > "$T/few/$n"
	done
	slow_start --mutation-us 50000
	casbox stat > /dev/null
	echo "$limit" > "$STORE/config"
	{
		got=0
		"$CASBOX" put -j 1 "$T/few" > "$T/digest" || got=$?
		echo "$got" > "$T/status"
	} &
	pid=$!
	most=$(most_spooled)
	wait "$pid"
	eq "status of put" 0 "$(cat "$T/status")"
	eq "blobs moved" 9 "$(find "$T/back/cas" -type f -name '[0-9a-f]*' | wc -l)"
	case $limit in
	'') [ "$most" -gt 2 ] || fail "without a limit only $most were spooled at once" ;;
	*) [ "$most" -le 2 ] || fail "$limit: $most were spooled at once" ;;
	esac
	slow_stop
done
