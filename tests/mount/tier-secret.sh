#!/bin/sh
# a credential is in its file and in requests, and nowhere else
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
secret=s3cr3t-t0k3n-$$
echo "$secret" > "$T/token"
echo "Bearer $secret" > "$T/http/auth"

mkdir "$T/tree"
seq 5000 > "$T/tree/file"
echo other > "$T/tree/other"
root=$(far_put "$T/tree")
casbox stat > /dev/null
echo "tier = $URL?token-file=$T/token&tries=1" > "$STORE/config"
mount_start --log-level debug
sandbox=$(sandbox_new "$root" --id one)
cmp "$T/tree/file" "$sandbox/file" || fail "the token does not help"

# Not in what can be seen of the process, nor in what it says.
for what in cmdline environ; do
	! tr '\0' '\n' < "/proc/$DAEMON/$what" | grep -q "$secret" || fail "it is in $what"
done
casbox ctl --mount "$MNT" config > "$T/config.out"
casbox ctl --mount "$MNT" stats > "$T/stats.out"
cat "$MNT/.casbox/config" "$MNT/.casbox/help" > "$T/dot.out"
exec 8< "$MNT/.casbox/events"
fault error
cat "$sandbox/other" > /dev/null 2>&1 && fail "no error"
fault none
# The file may be replaced: the next request has what is in it.
echo wrong > "$T/token"
expect 1 cat "$sandbox/other"
grep -q "status 401" "$T/daemon.log" || fail "the log does not say why"
echo "$secret" > "$T/token"
eq "with the token" other "$(cat "$sandbox/other")"
casbox sandbox finish one > "$T/finish.out"
within 5 head -n 1 <&8 > "$T/events.out"
timeout 2 cat <&8 >> "$T/events.out" || :
cat "$MNT/.casbox/metrics" "$MNT"/.casbox/sandboxes/one/* > "$T/seen.out"
grep -q casbox_tier_ "$T/seen.out" || fail "no metrics of tiers"
grep -q '"event"' "$T/events.out" || fail "no events: $(cat "$T/events.out")"
! grep -rqF "$secret" "$T"/*.out "$T/daemon.log" "$STORE" || fail "it is told"

# No core of such a process: others of its user may not look into it either.
kill -SEGV "$DAEMON"
status=0
wait "$DAEMON" || status=$?
DAEMON=
eq "status of a crash" 139 "$status"
find "$T" / -maxdepth 1 -name 'core*' -newer "$T/token" > "$T/left"
eq "cores" "" "$(cat "$T/left")"

# Wrong files of credentials are told by name.
: > "$T/nothing"
expect 1 casbox --tier "$URL?token-file=$T/nothing" cat "$root"
said "no credentials in $T/nothing"
expect 1 casbox --tier "$URL?token-file=$T/none" cat "$root"
said "$T/none"
expect 1 casbox --tier "http://me:$secret@localhost/" cat "$root"
! grep -q "$secret" "$T/err" || fail "the URL is repeated"
