#!/bin/sh
# tests/mount/explain-facts.sh - explain: where a blob is and who needs it, what a sandbox is, why a name is missing
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3
LIB=$HERE/../lib

# says WORDS...: each stands in what `explain` printed.
says() {
	for text in "$@"; do
		grep -qF -e "$text" "$T/out" || fail "explain lacks '$text': $(cat "$T/out")"
	done
}

body() {
	mkdir -p tree/include/sub tree/src
	echo '#define A 1' > tree/include/config.h
	echo x > tree/include/Types.h
	echo y > tree/include/sub/deep.h
	ln -s ../include tree/src/inc
	ln -s /usr/include tree/src/sys
	ln -s round tree/src/round
	ln -s ../include/sub/deep.h tree/src/file
	echo 'int main' > tree/src/main.c
	cp -a tree tree2
	echo 'int other' > tree2/src/main.c
	rm tree2/src/round
	first=$(put tree)
	second=$(put tree2)
	blob=$(put tree/include/config.h)
	casbox explain "$blob" > out
	says "is a blob of 12 bytes" "It lies at $STORE/cas/$(printf %.2s "$blob")/${blob%/*}, mode 0444" \
		"It was put here, not brought from a tier" "No pin and no sandbox needs it"
	casbox pin "$first"
	expect 0 casbox explain "${blob%/*}"
	says "Pins that keep it: 1" "    $first include/config.h"
	casbox unpin "$first"
	expect 0 casbox explain "$first"
	says "is a Directory of"
	absent=$(printf 'ab%.0s' $(seq 32))/7
	expect 0 casbox explain "$absent"
	says "is a blob of 7 bytes" "It is not in this store, and there are no tiers"
	expect 0 casbox explain e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0
	says "every store has it"

	# Sandboxes and results.
	mount_start
	sandbox_new "$first" --id one --output out/ > /dev/null
	cat "$MNT/sandboxes/one/src/main.c" > "$MNT/sandboxes/one/out/made"
	casbox sandbox finish one > /dev/null
	python3 "$LIB/reapi.py" command cmd arg=sh arg=-c 'arg=mkdir d; cp include/config.h d/copy; echo out' env=PATH=/usr/bin:/bin out=d
	python3 "$LIB/reapi.py" action act "$(put cmd)" "$first"
	act=$(put act)
	casbox run --action "$act" > /dev/null
	expect 0 casbox explain "$blob"
	says "Sandboxes that have it: 1" "    one (input) include/config.h" \
		"Stored results that name it: 1" "    ${act%/*} (output d/copy)"
	expect 0 casbox explain "$(put tree/src/main.c)"
	says "    one (output) output out/made"
	expect 0 casbox explain "$act"
	says "    ${act%/*} (its Action)"
	printf 'out\n' > stdout
	expect 0 casbox explain "$(put stdout)"
	says "    ${act%/*} (standard output)"

	# A sandbox: its life, its former root.
	expect 0 casbox explain one
	says "Sandbox one is finished. Its input root is $first." "Its command ended with 0" \
		"set-up, until it was answered" "capturing its outputs" "outputs: out/"
	casbox sandbox remove one
	casbox explain one > out
	says "Sandbox one is gone. Its input root is $first."
	sandbox_new "$second" --id two --output out/o > /dev/null
	expect 0 casbox explain two
	if grep -q '^reuse = yes$' "$MNT/.casbox/config"; then
		says "took over what the kernel had cached of the root $first" "    M src/main.c" "    D src/round"
	fi
	echo stray > "$MNT/sandboxes/two/out/o"
	casbox sandbox finish two --json > /dev/null

	# Names.
	why() { expect 0 casbox explain two "$@"; }
	why include/Config.h
	says "There is no 'Config.h' in include (" "Names are case-sensitive; there is: config.h."
	why include/confg.h
	says "Similar names there: config.h."
	why deep.h
	says "There is no 'deep.h' in the top directory" "That name is at: include/sub/deep.h."
	why src/inc/types.h
	says "there is: Types.h." "src/inc is a symlink to ../include."
	why src/inc/sub/deep.h
	says "is there: a file, $(put tree/include/sub/deep.h), mode 0444, in include/sub ("
	why src/./inc/../include//config.h
	says "is there: a file, $blob"
	# A link may lead to a file, but not through one.
	why src/file
	says "src/file is there: a file, $(put tree/include/sub/deep.h)" "in include/sub (" \
		"src/file is a symlink to ../include/sub/deep.h."
	why src/file/
	says "a file is in the way: 'deep.h' in include/sub ("
	# What ends at a directory by its dots.
	for path in . ./ include/.. src/../src/..; do
		why "$path"
		says "$path is a directory of the tree, at the top directory ($second)"
	done
	why ''
	says "'' is a directory of the tree, at the top directory ($second)"
	why include/sub/.
	says "include/sub/. is a directory of the tree, at include/sub ("
	casbox ctl --mount "$MNT" explain "$first" ./ > answer
	grep -q '^{"ok":true,.*"why":"found-directory"' answer || fail "control: $(cat answer)"
	expect 2 casbox explain "$first" "$(printf 'a\377b')"
	said "the path is not UTF-8"
	why src/sys/stdio.h
	says "goes through an absolute symlink, out of the tree" "src/sys is a symlink to /usr/include."
	why src/main.c/x
	says "a file is in the way: 'main.c' in src ("
	why ../up
	says "leads out of the tree"
	why /usr
	says "is absolute"
	why out/o
	says "It belongs to the declared output out/o"
	why out
	says "made for the output out/o"
	why src
	says "is there: a directory"
	expect 0 casbox explain "$first" src/round
	eq "a loop is told once" 1 "$(grep -c 'is a symlink to' "$T/out")"
	says "a loop"
	expect 0 casbox explain "$MNT/sandboxes/two/src/gone.c"
	says "There is no 'gone.c' in src"
	expect 0 casbox explain "$(dashed "$first")" include/config.h
	says "is there: a file"

	# The same through control, and as JSON.
	casbox ctl --mount "$MNT" explain two include/Config.h > answer
	casbox explain --json "$blob" > facts
	casbox ctl --mount "$MNT" diff "$first" two > diffed
	python3 - <<'PY' || fail "JSON"
import json
a = json.load(open("answer"))
assert a["ok"] and a["facts"]["why"] == "missing" and a["facts"]["other_case"] == ["config.h"], a
assert "Names are case-sensitive" in a["words"]
f = json.load(open("facts"))
assert f["present"] and f["size"] == 12 and f["disk_bytes"] >= 512 and f["hashed"], f
assert f["nr_results"] == 1 and f["results"][0]["as"] == "output d/copy", f
d = json.load(open("diffed"))
assert d["ok"] and not d["same"] and not d["cut"], d
assert [(c["change"], c["path"]) for c in d["changes"]] == [("modified", "src/main.c"), ("deleted", "src/round")], d
PY

	# A blob that is gone, or damaged.
	rm -f "$(blob_path "$blob")"
	why include/config.h
	says "Its blob is not in this store"

	# Nothing of it.
	expect 1 casbox explain "${blob%/*}/13"
	said "that hash belongs to 12 bytes"
	expect 1 casbox explain nobody
	said "there is no sandbox nobody"
	expect 1 casbox explain "$(printf 'cd%.0s' $(seq 32))"
	said "no size is known"
	expect 0 casbox explain "$absent" x/y
	says "leads through a Directory that is not in this store"
	casbox sandbox remove two
	mount_stop
	# Without a daemon, from the files.
	expect 0 casbox explain two
	says "Sandbox two is gone"
}
body
