#!/bin/sh
# What goes on with tiers is told by events and metrics: a prefetch and its progress, trouble,
# blobs that are missing; never a credential.
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
secret=s3cr3t-t0k3n-$$
echo "$secret" > "$T/token"
echo "Bearer $secret" > "$T/http/auth"

# told TEXT...: all stand in one line of the events.
told() {
	cp "$MNT/.casbox/events" "$T/events"
	for text in "$@"; do
		grep -F -e "$text" "$T/events" > "$T/events.some" || return 1
		mv "$T/events.some" "$T/events"
	done
}

value() {
	sed -n "s|^$1 ||p" "$MNT/.casbox/metrics"
}

mkdir -p "$T/one/dir" "$T/two" "$T/three"
for i in $(seq 30); do
	echo "file $i" > "$T/one/dir/file-$i"
done
echo second > "$T/two/second"
echo third > "$T/three/third"
one=$(far_put "$T/one")
two=$(far_put "$T/two")
three=$(far_put "$T/three")
casbox stat > /dev/null
mount_start --tier "$URL?token-file=$T/token&tries=1&deadline=1h"

# In the background, told when it is done; then all is here.
casbox ctl prefetch "$one" > "$T/answer"
grep -q "^{\"ok\":true,\"prefetches\":\[{\"digest\":\"$one\",\"id\":1}\]}" "$T/answer" ||
	fail "$(cat "$T/answer")"
await told '"event":"prefetch","id":1' "\"digest\":\"$one\"" '"state":"done"'
fault error
eq "what was prefetched" "file 7" "$(cat "$MNT/cas/directory/$(dashed "$one")/dir/file-7")"
fault none
eq "done" 1 "$(value 'casbox_prefetch_commands_total{state="done"}')"
[ "$(value casbox_prefetch_blobs_total)" -ge 30 ] || fail "$(value casbox_prefetch_blobs_total) blobs"
# Waited for, and what it was.
casbox ctl prefetch --wait "$two" > "$T/answer"
grep -q '"blobs":2,"known":0,"bytes":7' "$T/answer" || fail "$(cat "$T/answer")"
got=0
casbox ctl prefetch --wait "$(printf '%064d' 5)/5" > "$T/answer" || got=$?
eq "status without it anywhere" 1 "$got"
grep -q '"errno":"ENOENT"' "$T/answer" || fail "$(cat "$T/answer")"

# A tier that hangs: who waits for it holds up nobody, and leaves when he is killed.
fault hang
casbox ctl prefetch --wait "$three" > "$T/answer" &
waiting=$!
asked() { [ "$(gets "$three")" -ge 1 ]; }
await asked
for i in 1 2 3; do
	within 10 "$CASBOX" ctl version > /dev/null || fail "others wait, too"
done
eq "running" 1 "$(value casbox_prefetch_running)"
kill -KILL "$waiting"
gone() { ! grep -q '^State:.*[SRD] (' "/proc/$1/status" 2> /dev/null; }
await gone "$waiting"
within 10 "$CASBOX" ctl version > /dev/null || fail "the daemon does not answer"
fault none

# Trouble, and what is not to be had.
echo "Bearer other" > "$T/http/auth"
sandbox=$(sandbox_new "$(put "$T/two")" --id two)
eq "what is here" second "$(cat "$sandbox/second")"
echo fourth > "$T/three/fourth"
fourth=$(far_put "$T/three/fourth")
expect 1 cat "$MNT/cas/file/$(dashed "$fourth")"
await told '"event":"tier-trouble"' "\"tier\":\"$URL\"" '"failures":'
[ "$(value "casbox_tier_errors_total{tier=\"$URL\"}")" -ge 1 ] || fail "no error is counted"
echo "Bearer $secret" > "$T/http/auth"

cat "$MNT/.casbox/events" "$MNT/.casbox/metrics" "$MNT/.casbox/config" > "$T/all"
casbox ctl stats >> "$T/all"
! grep -qF "$secret" "$T/all" || fail "the credential is told: $(grep -F "$secret" "$T/all")"
mount_stop

# Without tiers: the name of what a sandbox did not find.
echo gone > "$T/two/gone"
root=$(put "$T/two")
gone=$(put "$T/two/gone")
rm "$(blob_path "$gone")"
mount_start
sandbox=$(sandbox_new "$root" --id lacks)
expect 1 cat "$sandbox/gone"
await told '"event":"blob-missing"' "\"digest\":\"$gone\""
mount_stop
