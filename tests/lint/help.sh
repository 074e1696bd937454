#!/bin/sh
# tests/lint/help.sh CASBOX - help goes to standard output in 80 columns, errors do not
set -eu
casbox=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0

complain() {
	echo "$*"
	bad=1
}

# check WORD...: what `casbox WORD...` prints as help.
check_help() {
	"$casbox" "$@" > "$dir/out" 2> "$dir/err" || complain "casbox $*: exit status $?"
	[ -s "$dir/out" ] || complain "casbox $*: nothing on standard output"
	[ ! -s "$dir/err" ] || complain "casbox $*: something on standard error"
	if grep -nE '^.{81}' "$dir/out"; then
		complain "casbox $*: wider than 80 columns"
	fi
	if grep -nP '\t|[ \t]$' "$dir/out"; then
		complain "casbox $*: a tab, or blanks at the end of a line"
	fi
}

# A wrong call of `casbox WORD...`: status 2, one line that points at --help.
check_wrong() {
	status=0
	"$casbox" "$@" > "$dir/out" 2> "$dir/err" < /dev/null || status=$?
	[ "$status" -eq 2 ] || complain "casbox $*: exit status $status instead of 2"
	[ ! -s "$dir/out" ] || complain "casbox $*: an error on standard output"
	[ "$(wc -l < "$dir/err")" -eq 1 ] || complain "casbox $*: not one line of error"
	grep -q -e --help "$dir/err" || complain "casbox $*: does not point at --help"
}

export CASBOX_STORE="$dir/store" XDG_CONFIG_HOME="$dir"
check_help --help
check_help help
commands=$("$casbox" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 12 ] || complain "only these commands: $commands"
for command in $commands; do
	[ "$command" != help ] || continue
	check_help "$command" --help
	check_help help "$command"
	check_wrong "$command" --no-such-option
	check_wrong "$command" --store
done
for sub in create finish show list remove; do
	check_help sandbox "$sub" --help
	check_wrong sandbox "$sub" --no-such-option
done
check_wrong
check_wrong no-such-command
check_wrong --no-such-option
check_wrong put
check_wrong gc
check_wrong checkout one
check_wrong sandbox explode
check_wrong run
[ ! -e "$dir/store" ] || complain "a wrong call made a store"
"$casbox" --version | grep -qE '^casbox [0-9]+\.[0-9]+\.[0-9]+$' || complain "--version"
exit $bad
