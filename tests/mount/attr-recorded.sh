#!/bin/sh
# tests/mount/attr-recorded.sh - times and modes that --preserve recorded are shown
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir "$T/tree"
echo one > "$T/tree/file"
chmod 640 "$T/tree/file"
touch -d '@1234567890.123456789' "$T/tree/file"
plain=$(put "$T/tree")
root=$(put --preserve "$T/tree")
[ "$plain" != "$root" ] || fail "--preserve changed nothing"

mount_start
"$FSCHECK" stat "$(sandbox_new "$plain")/file" mode=0444 mtime=946684800
"$FSCHECK" stat "$(sandbox_new "$root")/file" mode=0640 mtime=1234567890 mtime-ns=123456789
mount_stop
