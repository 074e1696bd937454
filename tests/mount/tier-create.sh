#!/bin/sh
# a create that waits for a silent server: it ends with its client, and with the mount
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

for which in killed unmounted near; do
	mkdir "$T/$which"
	echo "$which" > "$T/$which/file"
done
near=$(put "$T/near")
mount_start --tier "$URL?deadline=1h&tries=1"
fault hang

# create_waits TREE: asks for a sandbox of it, and is at the server.
create_waits() {
	before=$(asked)
	root=$(far_put "$T/$1")
	"$CASBOX" sandbox create --root "$root" --id one --mount "$MNT" > "$T/out" 2> "$T/err" &
	client=$!
	await sh -c "[ \$(wc -l < '$T/http/log') -gt $before ]"
}
asked() { wc -l < "$T/http/log"; }

create_waits killed
expect 1 casbox sandbox create --root "$near" --id one
said "sandbox id one is in use"
kill -9 "$client"
wait "$client" 2> "$T/ignored" || :
await "$CASBOX" sandbox create --root "$near" --id one
eq "whose it is" near "$(cat "$MNT/sandboxes/one/file")"
casbox sandbox remove one

create_waits unmounted
mount_stop
status=0
wait "$client" || status=$?
eq "status of the create" 1 "$status"
said "the mount is ending"
mount_start
eq "sandboxes" "" "$(casbox sandbox list)"
mount_stop
