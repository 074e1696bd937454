# tests/lib/control.sh - to talk to the control file, open as descriptor 9

# ask LINE: its answer, over descriptor 9.
ask() {
	printf '%s\n' "$1" >&9
	IFS= read -r answer <&9 || fail "no answer to: $1"
}

# has TEXT...: each stands in the last answer.
has() {
	for text in "$@"; do
		case $answer in *"$text"*) ;; *) fail "the answer lacks '$text': $answer" ;; esac
	done
}
