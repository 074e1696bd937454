#!/bin/sh
# tests/lint/man.sh CASBOX TOOLS - every option is in its manual page and completed, and no other
set -eu
casbox=$1
tools=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CASBOX_STORE="$dir/store" XDG_CONFIG_HOME="$dir"
bad=0

complain() {
	echo "$*"
	bad=1
}

# The options in help (but those of every command), and those that a page lists.
of_help() {
	"$casbox" "$@" --help | sed -n '/^Options:/,/^$/s/^  \(-., \)* *\(--[a-z-]*\).*/\2/p' | sort -u
}
of_page() {
	sed -n 's/^\*\(-.\*, \*\)*\(--[a-z-]*\)\*.*/\2/p' "$@" | sort -u
}

of_help | grep -vx -e --help > "$dir/common"
of_page "$tools/man/casbox.1.scd" | grep -vx -e --help -e --version > "$dir/page"
diff "$dir/common" "$dir/page" || complain "casbox.1 and the options of every command differ"

for page in run mount sandbox store; do
	file=$tools/man/casbox-$page.1.scd
	case $page in
	mount) commands='mount umount ctl' ;;
	store) commands='put cat ls diff explain checkout stat du fsck gc pin unpin pull push' ;;
	sandbox) commands='sandbox/create sandbox/finish sandbox/show sandbox/list sandbox/remove' ;;
	*) commands=$page ;;
	esac
	for command in $commands; do
		# shellcheck disable=SC2046
		of_help $(echo "$command" | tr / ' ')
	done | sort -u > "$dir/help"
	for command in $commands; do echo "${command%/*}"; done >> "$dir/documented"
	of_page "$file" > "$dir/page"
	diff "$dir/help" "$dir/page" || complain "casbox-$page.1 and the help differ"
done
"$casbox" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vx help | sort > "$dir/commands"
sort -u "$dir/documented" | diff "$dir/commands" - || complain "commands and pages differ"

if command -v bash > /dev/null; then
	# complete WORD...: what bash offers for the last one.
	complete() {
		# shellcheck disable=SC2016
		bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _casbox; echo ${COMPREPLY[*]}' \
			bash "$tools/completion/casbox.bash" "$casbox" "$@"
	}
	[ "$(complete ru)" = run ] || complain "bash: ru: $(complete ru)"
	[ "$(complete run --isol)" = --isolate ] || complain "bash: run --isol: $(complete run --isol)"
	[ "$(complete sandbox finish --exit)" = --exit-code ] || complain "bash: sandbox finish"
	[ "$(complete sandbox cr)" = create ] || complain "bash: sandbox cr: $(complete sandbox cr)"
	[ "$(complete run -w d)" = dirs ] || complain "bash: run -w d: $(complete run -w d)"
	complete run - | tr ' ' '\n' | grep '^--' | sort -u > "$dir/completed"
	of_help run | cat - "$dir/common" | sort -u | grep -vxF -f "$dir/completed" && complain "bash lacks these"
fi
if command -v zsh > /dev/null; then
	zsh -n "$tools/completion/_casbox" || complain "zsh does not read its completion"
fi
exit $bad
