# tests/lint/files.sh - sourced by the checks: go to the source root and list its files
#
# In a git checkout the tracked and the new, unignored files; else everything but what
# builds leave. `sources PATTERN...` prints those whose path matches a shell pattern.
set -eu
LC_ALL=C
export LC_ALL
cd "$1"

all_files() {
	if [ -e .git ] && git ls-files > /dev/null 2>&1; then
		git ls-files --cached --others --exclude-standard | while read -r f; do
			if [ -e "$f" ] || [ -L "$f" ]; then printf '%s\n' "$f"; fi
		done
	else
		find . -path './build*' -prune -o -path ./.git -prune -o \! -type d -print | sed 's|^\./||'
	fi | sort
}

sources() {
	all_files | while read -r f; do
		for pattern in "$@"; do
			# shellcheck disable=SC2254
			case $f in $pattern) printf '%s\n' "$f" && break ;; esac
		done
	done
}

# Print what is wrong, exit 1 if that is anything.
verdict() {
	if [ -s "$1" ]; then
		cat "$1"
		exit 1
	fi
}

faults=$(mktemp)
trap 'rm -f "$faults"' EXIT
