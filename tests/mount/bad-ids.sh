#!/bin/sh
# tests/mount/bad-ids.sh - sandboxes that cannot be made say why, and nothing is left of them
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir "$T/tree"
echo text > "$T/tree/file"
root=$(put "$T/tree")
file=$(put "$T/tree/file")
absent=$(printf 'ab%.0s' $(seq 32))/12
mount_start

refused() {
	expect 1 within 10 "$CASBOX" sandbox create --mount "$MNT" "$@"
}

refused --root "$root" --id a/b
said "id a/..."
refused --root "$root" --id ..
refused --root "$root" --id .
refused --root "$root" --id ''
refused --root "$root" --id=--
said "sandbox id -- starts with two dashes"
refused --root "$root" --id "$(printf 'ab\377c')"
said "sandbox id ab...: byte 0xff in it"
refused --root "$root" --id "a b"
said "sandbox id a ...: only letters"
refused --root "$root" --id "$(printf 'x%.0s' $(seq 255))"
said "255 bytes"
sandbox_new "$root" --id taken > /dev/null
refused --root "$root" --id taken
said taken
refused --root "$file" --id f
said "${file%/*}"
refused --root "$absent" --id g
said "${absent%/*}"
expect 2 within 10 "$CASBOX" sandbox create --mount "$MNT" --root nonsense --id h
said nonsense
eq "sandboxes" taken "$(ls "$MNT/sandboxes")"

# The longest name there is.
long=$(printf 'x%.0s' $(seq 128))
eq "text" text "$(cat "$(sandbox_new "$root" --id "$long")/file")"
casbox sandbox remove "$long"
casbox sandbox remove taken
expect 1 casbox sandbox remove taken
said taken
expect 1 casbox sandbox finish taken
expect 1 casbox sandbox show taken
eq "sandboxes" "" "$(ls "$MNT/sandboxes")"
mount_stop
