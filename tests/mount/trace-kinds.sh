#!/bin/sh
# What .casbox/sandboxes/ID tells of each kind of trace, live, finished and after a restart.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3

# lines ID FILE: without notes
lines() {
	grep -v '^# ' "$MNT/.casbox/sandboxes/$1/$2" | paste -sd ' '
}

first() {
	head -n 1 "$MNT/.casbox/sandboxes/$1/$2"
}

# act ID: an action that reads src/a through a link, runs tool, misses src/none, makes out/new and
# src/obj.
act() {
	box=$("$CASBOX" sandbox show "$1" --json --mount "$MNT" | sed 's/.*"path": *"\([^"]*\)".*/\1/')
	(cd "$box" && cat src/link > "$T/out" && ./tool && [ ! -e src/none ] && ls deep > "$T/out" &&
		echo new > out/new && mkdir out/dir && echo obj > src/obj) || fail "the action in $1"
}

body() {
	mkdir -p "$T/tree/src" "$T/tree/deep/er"
	echo a > "$T/tree/src/a"
	ln -s a "$T/tree/src/link"
	echo b > "$T/tree/deep/er/b"
	echo c > "$T/tree/c"
	printf '#!/bin/sh\n:\n' > "$T/tree/tool"
	chmod 755 "$T/tree/tool"
	root=$(put "$T/tree")
	mount_start --without push
	expect 2 casbox sandbox create --root "$root" --trace some --mount "$MNT"
	said "off|names|reads|exact"
	for kind in off names reads exact; do
		sandbox_new "$root" --id "$kind" --output src/obj --output out/ --trace "$kind" \
			> "$T/path"
		case $kind in exact) want=traced ;; *) want=sandboxes ;; esac
		eq "path of $kind" "$MNT/$want/$kind" "$(cat "$T/path")"
		act "$kind"
	done
	eq "traced" exact "$(ls "$MNT/traced")"
	eq "all" "exact names off reads" "$(ls "$MNT/.casbox/sandboxes" | sort | paste -sd ' ')"
	eq "files" "inputs-read inputs-unread lookups-failed missing status writes" \
		"$(ls "$MNT/.casbox/sandboxes/off" | paste -sd ' ')"
	told
	for kind in off names reads exact; do
		casbox sandbox finish "$kind" > "$T/out"
	done
	told
	eq "made" "out/ src/obj" "$(lines off writes)"
	# What copies by sendfile, as Python does, has all of it.
	for file in inputs-unread lookups-failed writes; do
		python3 -c 'import shutil, sys; shutil.copyfile(*sys.argv[1:])' \
			"$MNT/.casbox/sandboxes/exact/$file" "$T/copied"
		cmp "$T/copied" "$MNT/.casbox/sandboxes/exact/$file" || fail "$file, copied"
	done
	mount_stop
	mount_start
	told
	casbox sandbox remove exact
	[ ! -e "$MNT/traced/exact" ] || fail "traced/exact is left"
	[ ! -e "$MNT/.casbox/sandboxes/exact" ] || fail "its files are left"
	mount_stop
}

told() {
	for file in inputs-read inputs-unread lookups-failed; do
		eq "$file, untraced" "" "$(lines off $file)"
		first off $file | grep -q '^# .*not traced' || fail "$file does not say why"
	done
	first names inputs-read | grep -q '^# .*lower bound' || fail "names: no bound"
	eq "names: unread" "" "$(lines names inputs-unread)"
	eq "exact: read" "deep/ src/a src/link tool" "$(lines exact inputs-read)"
	eq "exact: unread" "c deep/er/b" "$(lines exact inputs-unread)"
	eq "exact: failed" "src/none src/obj" "$(lines exact lookups-failed)"
	eq "exact: writes" "out/dir/ out/new src/obj" "$(lines exact writes)"
	grep -q '"trace": "exact"' "$MNT/.casbox/sandboxes/exact/status" || fail "status"
	for count in '"made": 3' '"replaced": 0' '"removed": 0'; do
		grep -q "$count" "$MNT/.casbox/sandboxes/exact/status" ||
			fail "status lacks $count: $(cat "$MNT/.casbox/sandboxes/exact/status")"
	done
	# Where nobody tells of opens it says so, and is as names.
	if first reads inputs-read | grep -q '^# reads'; then
		eq "reads: unread" "c deep/er/b" "$(lines reads inputs-unread)"
		for f in src/a tool; do
			lines reads inputs-read | tr ' ' '\n' | grep -qx $f || fail "reads: no $f"
		done
	else
		grep -q '^# reads was asked for' "$MNT/.casbox/sandboxes/reads/inputs-read" ||
			fail "reads: no word of what it is"
	fi
}

# An input that was replaced is not read, but what was changed or read before is.
replaced() {
	mkdir "$T/inputs"
	for f in gone new kept changed; do echo $f > "$T/inputs/$f"; done
	mount_start
	box=$(sandbox_new "$(put "$T/inputs")" --id r --writable all --trace exact)
	(cd "$box" && rm gone && echo other > t && mv t new && cat new > "$T/out" &&
		cat kept > "$T/out" && echo more >> changed)
	eq "read" "changed kept" "$(lines r inputs-read)"
	eq "unread" "gone new" "$(lines r inputs-unread)"
	eq "writes" "changed new gone" "$(lines r writes)"
	casbox sandbox finish r > "$T/out"
	eq "writes when finished" "changed new gone" "$(lines r writes)"
	mount_stop
}

# section FILE HEADING: the lines below a heading
section() {
	sed -n "/^# $2/,/^# /p" "$1" | grep -v '^# ' | paste -sd ' '
}

# Directories that were moved, made anew or removed are told with what is or was in them, by
# whichever engine.
moved() {
	mkdir -p "$T/dirs/old/deep" "$T/dirs/again/sub" "$T/dirs/gone/sub" "$T/dirs/kept"
	for f in old/a old/deep/b again/c again/sub/d gone/e gone/sub/f kept/g h; do
		echo $f > "$T/dirs/$f"
	done
	moved_root=$(put "$T/dirs")
	for engine in '' '--engine fuse'; do
		# shellcheck disable=SC2086
		mount_start $engine
		box=$(sandbox_new "$moved_root" --id m --writable all --trace names)
		(cd "$box" && mv old new && echo more > new/deep/mine && rm -r again gone h &&
			mkdir again && echo c > again/c && rm kept/g)
		for state in live finished; do
			cp "$MNT/.casbox/sandboxes/m/writes" "$T/writes"
			eq "moved $engine, $state: made" "new/ new/a new/deep/ new/deep/b new/deep/mine" \
				"$(section "$T/writes" made)"
			eq "moved $engine, $state: replaced" again/c "$(section "$T/writes" 'inputs that it ch')"
			eq "moved $engine, $state: removed" "again/sub/ gone/ h kept/g old/" \
				"$(section "$T/writes" 'inputs that it rem')"
			[ $state = live ] || break
			casbox sandbox finish m > "$T/out"
		done
		casbox sandbox remove m
		mount_stop
	done
}

# Of what was read before the daemon was killed nothing is known: so nothing is told as unread.
killed() {
	mount_start
	for kind in reads exact; do
		cat "$(sandbox_new "$root" --id "k$kind" --trace $kind)/src/a" > "$T/out"
	done
	mount_kill
	mount_start
	for kind in reads exact; do
		eq "unread of k$kind" "" "$(lines "k$kind" inputs-unread)"
		first "k$kind" inputs-unread | grep -q '^# .*nobody can tell' || fail "k$kind: no word"
		casbox ctl --mount "$MNT" trace "k$kind" | grep -q '"unread":null' || fail "k$kind: JSON"
		casbox explain "k$kind" > "$T/out"
		grep -q 'it read 0 inputs, looked for' "$T/out" || fail "k$kind: $(cat "$T/out")"
		casbox sandbox remove "k$kind"
	done
	mkdir "$T/hash"
	echo > "$T/hash/#name"
	(sandbox_new "$(put "$T/hash")" --id hash --trace exact) > "$T/out"
	casbox explain hash > "$T/out"
	grep -q 'it read 0 inputs, never looked at 1, ' "$T/out" || fail "a hash: $(cat "$T/out")"
	# Who looks while it goes finds nothing.
	(
		cd "$MNT/.casbox/sandboxes/hash"
		casbox sandbox remove hash
		"$FSCHECK" call ENOENT stat status
	) || fail "status of a sandbox that went"
	! grep 'error: .*status' "$T/daemon.log" || fail "an error of a sandbox that went"
	mount_stop
}

# Roots serve one sandbox after the other, with marks or without: nothing that is read is missed,
# and nothing is told of another sandbox.
reused() {
	mkdir -p "$T/lane/x/y" "$T/lane/z"
	for f in a x/b x/y/c z/d; do echo "$f" > "$T/lane/$f"; done
	mount_start
	for i in $(seq 12); do
		# Directories come and go.
		rm -rf "$T/lane/z" "$T/lane/x/w$((i - 2))"
		mkdir -p "$T/lane/x/w$i"
		echo "$i" > "$T/lane/x/w$i/e"
		[ $((i % 3)) -eq 0 ] || { mkdir "$T/lane/z" && echo d > "$T/lane/z/d"; }
		kind=reads
		[ $((i % 4)) -ne 2 ] || kind=off
		box=$(sandbox_new "$(put "$T/lane")" --id "lane$i" --trace $kind)
		other=$(sandbox_new "$(put "$T/lane")" --id "other$i" --trace reads)
		(cd "$box" && find . -type f ! -name a -exec cat {} + > "$T/out")
		cat "$other/a" > "$T/out"
		if [ $kind = reads ] && first "lane$i" inputs-read | grep -q '^# reads:'; then
			eq "unread of $i" a "$(lines "lane$i" inputs-unread)"
			eq "read of the other" a "$(lines "other$i" inputs-read)"
		fi
		casbox sandbox finish --remove "lane$i" > "$T/out"
		casbox sandbox remove "other$i"
	done
	mount_stop
}

# Where we serve what is written, opens are not told, and that is said.
served() {
	mount_start --engine fuse
	sandbox_new "$root" --id served --output out/ --trace reads > "$T/path"
	cat "$(cat "$T/path")/src/a" > "$T/out"
	first served inputs-read | grep -q '^# names' || fail "served: $(first served inputs-read)"
	eq "unread, served" "" "$(lines served inputs-unread)"
	mount_stop
}

# The files of a run, for who has no mount to look at.
run_files() {
	casbox run --root "$root" --output out/ --trace exact --trace-dir "$T/td" -- \
		sh -c 'cat src/a > out/copy'
	eq "unused" "c deep/er/b src/link tool" "$(paste -sd ' ' "$T/td/unused_inputs_list")"
	eq "files" "inputs-read inputs-unread lookups-failed missing status unused_inputs_list writes" \
		"$(ls "$T/td" | paste -sd ' ')"
	# What was refused, because it changed an input, is told all the same.
	rm -r "$T/td"
	expect 125 casbox run --root "$root" --output src/obj --trace exact --trace-dir "$T/td" -- \
		sh -c 'echo more > src/a'
	grep -qx src/a "$T/td/writes" || fail "a refused run: $(cat "$T/td/writes")"
	casbox run --isolate --root "$root" --output out/ --trace reads --trace-dir "$T/td" -- \
		sh -c 'cat src/a > out/copy; ./tool' ||
		return 0
	if head -n 1 "$T/td/inputs-read" | grep -q '^# reads'; then
		eq "isolated" "src/a tool" "$(grep -v '^# ' "$T/td/inputs-read" | paste -sd ' ')"
	fi
	casbox umount > "$T/out" 2>&1 || :
}

each_user body
[ -n "${TEST_PLAIN:-}" ] || {
	replaced
	moved
	killed
	reused
	served
	run_files
}
