#!/bin/sh
# tests/mount/store-owners.sh - root's sandbox in somebody's store does not shut him out of it
. "$(dirname "$0")/../lib/common.sh"
need root fuse setpriv

chmod 755 "$T"
mkdir tree
echo text > tree/file
mkdir "$STORE"
chown $PLAIN_UID:$PLAIN_UID "$STORE" "$HOME" "$XDG_CACHE_HOME" "$XDG_CONFIG_HOME" "$XDG_RUNTIME_DIR"
mine() {
	setpriv --reuid=$PLAIN_UID --regid=$PLAIN_UID --clear-groups "$CASBOX" "$@"
}
mine put tree > root
mount_start
sb=$(sandbox_new "$(cat root)" --id live --output out/)
echo o > "$sb/out/o"
sandbox_new "$(cat root)" --id done --output out/ > done
echo o > "$(cat done)/out/o"
casbox sandbox finish done > /dev/null
casbox sandbox create --root "$(cat root)" --id twice --output o > /dev/null
casbox sandbox finish twice > /dev/null
mount_kill
for file in live/record done/record done/result twice/record; do
	eq "owner of $file" $PLAIN_UID "$(stat -c %u "$STORE/sandboxes/$file")"
done
expect 0 mine gc --max-size 0
eq "input" text "$(mine cat "$(mine put tree/file)")"
expect 0 mine stat
