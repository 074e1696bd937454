#!/bin/sh
# tests/lint/install.sh BUILD PREFIX man|no-man LIBEXECDIR - what `meson install` puts where
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0

DESTDIR=$dir meson install -C "$1" --no-rebuild --quiet > "$dir/log" 2>&1 || {
	cat "$dir/log"
	exit 1
}
has() {
	[ -s "$dir$prefix/$1" ] || {
		echo "not installed: $1"
		bad=1
	}
}
prefix=$2
has bin/casbox
has "$4/casbox-full"
has share/bash-completion/completions/casbox
has share/zsh/site-functions/_casbox
has lib/systemd/user/casbox@.service
grep -q "^ExecStart=$prefix/bin/casbox mount" "$dir$prefix/lib/systemd/user/casbox@.service" || bad=1
if [ "$3" = man ]; then
	for page in casbox casbox-run casbox-mount casbox-umount casbox-put casbox-store casbox-sandbox; do
		has share/man/man1/$page.1
	done
	has share/man/man5/casbox.conf.5
	has share/man/man5/casbox-control.5
	grep -q -- "isolate" "$dir$prefix/share/man/man1/casbox-run.1" || bad=1
fi
# Completion finds the command behind every option that takes a value.
PATH=$dir$prefix/bin:$PATH
completed() { # WORD...: what the last of them can be
	bash -c '. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _casbox && echo "${COMPREPLY[*]}"' \
		"$dir$prefix/share/bash-completion/completions/casbox" "$@"
}
for option in $(casbox run --help | sed -n '/^Common/,$s/^  .* \(--[a-z-]*\) [A-Z].*/\1/p'); do
	if [ "$(completed casbox "$option" 1 ru),$(completed casbox "$option" = 1 ru)" != run,run ]; then
		echo "not completed: casbox $option 1 ru"
		bad=1
	fi
done
[ "${option:-none}" != none ] || bad=1
[ "$("$dir$prefix/bin/casbox" --version | cut -d ' ' -f 1)" = casbox ] || bad=1
# Called through a symlink it still finds the rest; alone it says what is missing.
ln -s "$dir$prefix/bin/casbox" "$dir/other"
[ "$("$dir/other" --version)" = "$("$dir$prefix/bin/casbox" --version)" ] || bad=1
cp "$dir$prefix/bin/casbox" "$dir/alone"
for command in put:1 diff:2 run:125; do
	status=0
	"$dir/alone" "${command%:*}" x > "$dir/log" 2>&1 || status=$?
	[ -e "$prefix/$4/casbox-full" ] || {
		[ "$status" -eq "${command#*:}" ] && grep -q "cannot execute $prefix/$4/casbox-full" "$dir/log"
	} || {
		echo "alone: ${command%:*} ended with $status: $(cat "$dir/log")"
		bad=1
	}
done
exit $bad
