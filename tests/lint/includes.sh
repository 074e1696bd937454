#!/bin/sh
# Includes go one way, tools -> fs -> meta -> cas, are written from the source root, a .c
# file begins with its own header, and a header ending in _i.h stays in its folder.
. "$(dirname "$0")/files.sh"

sources '*.c' '*.h' | while read -r f; do
	own=
	if [ -e "${f%.c}.h" ] && [ "$f" != "${f%.c}" ]; then own=${f%.c}.h; fi
	awk -v f="$f" -v own="$own" '
	BEGIN {
		split("cas meta fs tools tests", order)
		for (i in order)
			rank[order[i]] = i
		split(f, part, "/")
		me = part[1]
		first = 1
	}
	/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
		system_header = ($0 ~ /</)
		name = $0
		sub(/^[^<"]*[<"]/, "", name)
		sub(/[>"].*/, "", name)
		if (first && own != "" && name != own)
			print f ":" NR ": the first include is " name ", not its own " own
		first = 0
		if (system_header)
			next
		split(name, part, "/")
		top = part[1]
		# What protobuf-c makes lies in cas/ of the build directory.
		if (!(top in rank)) {
			print f ":" NR ": " name " is not written from the source root"
			next
		}
		if (rank[top] > rank[me])
			print f ":" NR ": " me " may not include " name
		if (name ~ /_i\.h$/ && me != "tests") {
			a = f; b = name
			sub(/\/.*/, "", a); sub(/\/.*/, "", b)
			if (a != b)
				print f ":" NR ": " name " is private to " b "/"
		}
		if (me == "tests" && top == "tests" && name !~ /^tests\/(lib|fuzz)\//)
			print f ":" NR ": " name " is not a shared test helper"
	}' "$f"
done > "$faults"
verdict "$faults"
