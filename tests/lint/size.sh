#!/bin/sh
# Ceilings: 900 lines a .c file, 300 a header, 120 lines a function, 100 columns.
. "$(dirname "$0")/files.sh"

# Functions are read off the layout that clang-format gives: "{" and "}" in column one.
sources '*.c' '*.h' | while read -r f; do
	awk -v f="$f" '
	/^{$/ { start = NR }
	/^}/ && start {
		if (NR - start - 1 > 120)
			print f ":" start ": a function of " NR - start - 1 " lines, more than 120"
		start = 0
	}
	{
		max = f ~ /\.h$/ ? 300 : 900
		if (NR == max + 1)
			print f ": more than " max " lines"
	}' "$f"
done > "$faults"
verdict "$faults"
