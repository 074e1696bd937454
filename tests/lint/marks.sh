#!/bin/sh
# No mark of unfinished work, no debugging left-over, and no static state outside tools/,
# tests/ and the two places in cas/base/ that exist for it.
. "$(dirname "$0")/files.sh"

mark='\b(TO''DO|FIX''ME|XX''X|HA''CK)\b|not (yet )?imple''mented|^[[:space:]]*#[[:space:]]*if 0\b'
{
	sources 'cas/*' 'meta/*' 'fs/*' 'tools/*' 'tests/*.[ch]' 'tests/*.sh' '*.build' '.ci/*' |
		xargs -d '\n' grep -nEI "$mark" || :
	sources 'cas/*.c' 'meta/*.c' 'fs/*.c' | grep -vxE 'cas/base/(log|lock)\.c' |
		xargs -d '\n' awk '
		/^[ \t]*static / && !/\(/ && !/(^|[ \t])const[ \t]/ && /[;={]/ {
			print FILENAME ":" FNR ": static state: " $0
		}'
	sources '*.c' '*.h' | while read -r f; do
		IFS= read -r line < "$f"
		case $line in
		"/* $f - "*) ;;
		*) echo "$f:1: does not open with its path and purpose" ;;
		esac
	done
	sources '*.h' | while read -r f; do
		guard=$(printf '%s' "$f" | tr 'a-z/.-' 'A-Z___')
		grep -q "^#ifndef $guard\$" "$f" || echo "$f: the include guard is not $guard"
	done
} > "$faults"
verdict "$faults"
