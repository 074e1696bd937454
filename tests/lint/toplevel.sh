#!/bin/sh
# The top level holds these entries and no others.
. "$(dirname "$0")/files.sh"

all_files | sed 's|/.*||' | sort -u | while read -r entry; do
	case $entry in
	cas | meta | fs | tools | tests | man) ;;
	meson.build | meson_options.txt | README.md | LICENSE) ;;
	.ci | .clang-format | .gitattributes | .gitignore) ;;
	*) echo "unexpected at the top level: $entry" ;;
	esac
done > "$faults"
verdict "$faults"
