#!/bin/sh
# tests/mount/run-cache.sh - run --cache: answered when nothing changed, run when anything did
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay bwrap
bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null ||
	skip "bubblewrap may not make namespaces"

# Each execution makes another output.
WORK='cat /proc/sys/kernel/random/uuid > out/id; cp src/in out/in; ln -sf in out/link; echo said; echo warned >&2'

# same WHAT COMMAND...: it was answered: the same output, and what was said.
same() {
	what=$1
	shift
	before=$(cat proj/out/id)
	"$@" > said-out 2> said-err || fail "$what: status $?: $(cat said-err)"
	eq "$what" "$before" "$(cat proj/out/id)"
	eq "$what: standard output" said "$(cat said-out)"
	eq "$what: standard error" warned "$(cat said-err)"
}

# other WHAT COMMAND...: it was run.
other() {
	what=$1
	shift
	before=$(cat proj/out/id)
	"$@" > said-out 2> said-err || fail "$what: status $?: $(cat said-err)"
	[ "$before" != "$(cat proj/out/id)" ] || fail "$what: answered from the cache"
}

cached() {
	casbox run --cache "$@"
}

body() {
	mkdir -p proj/src proj/out tools
	echo input > proj/src/in
	echo none > proj/out/id
	printf '#!/bin/sh\necho one\n' > tools/tool
	chmod 755 tools/tool
	# The first look at the host's tools takes its time, so one way for each user.
	for way in $WAYS; do
		[ "$way" = --trust-host ] || way="--isolate --host-path $T/tools"
		rm -f proj/out/id
		mkdir -p proj/out
		echo none > proj/out/id
		PATH=$T/tools:$PATH
		# shellcheck disable=SC2086
		run() {
			cached $way --input proj --output out/ "$@"
		}
		other "first" run -- sh -c "$WORK"
		same "second" run -- sh -c "$WORK"
		ino=$(stat -c %i proj/out/id)
		same "third" run --result res.json -- sh -c "$WORK"
		eq "an output that is right stays" "$ino" "$(stat -c %i proj/out/id)"
		grep -q '"path": "out"' res.json || fail "$(cat res.json)"
		keep=$(cat proj/out/id)
		rm -r proj/out
		run -- sh -c "$WORK" > said-out
		eq "restored" "$keep|input|in" "$(cat proj/out/id)|$(cat proj/out/in)|$(readlink proj/out/link)"
		chmod u+w proj/out/in
		echo spoilt > proj/out/in
		same "with a changed output" run -- sh -c "$WORK"
		eq "put right" input "$(cat proj/out/in)"
		# Also where the mount is gone.
		casbox umount
		same "without a mount" run -- sh -c "$WORK"

		other "argument" run -- sh -c "$WORK; :"
		other "variable" run --env A=1 -- sh -c "$WORK"
		other "its value" run --env A=2 -- sh -c "$WORK"
		same "both variables" run --env A=2 -- sh -c "$WORK"
		other "outputs" run --output more/ -- sh -c "$WORK"
		other "policy" run --writable all -- sh -c "$WORK"
		other "directory" run --workdir . -- sh -c "$WORK"
		other "PATH" env PATH="$PATH:/x" "$CASBOX" run --cache $way --input proj --output out/ -- sh -c "$WORK"
		run --env A=2 -- sh -c "$WORK" > said-out
		UNRELATED=1 same "our environment" run --env A=2 -- sh -c "$WORK"
		echo changed > proj/src/in
		other "input" run --env A=2 -- sh -c "$WORK"
		echo input > proj/src/in

		# A tool of the host: replaced, and written to in place.
		other "with a tool" run -- sh -c "tool > out/t; $WORK"
		same "the same tool" run -- sh -c "tool > out/t; $WORK"
		printf '#!/bin/sh\necho two\n' > tools/tool
		other "tool in place" run -- sh -c "tool > out/t; $WORK"
		eq "tool" two "$(cat proj/out/t)"
		same "the new tool" run -- sh -c "tool > out/t; $WORK"
		cp -p tools/tool tools/new && mv tools/new tools/tool
		other "tool replaced" run -- sh -c "tool > out/t; $WORK"

		# A failure, and what misses an output, are run each time.
		for _ in 1 2; do
			expect 7 run -- sh -c 'cat /proc/sys/kernel/random/uuid > out/id; exit 7'
			eq "not kept" 1 "$(echo "${last:-}" | grep -vcx "$(cat proj/out/id)")"
			last=$(cat proj/out/id)
			expect 0 run --output gone -- sh -c "$WORK"
			said "did not make the output gone"
		done
		expect 124 run --timeout 0.3 -- sleep 60
		expect 124 run --timeout 0.3 -- sleep 60

		# What nobody was there to read is in no result.
		cut='trap "" PIPE; echo one; sleep 0.3; echo two; echo made > out/id; :'
		{ sleep 0.2 && run -- sh -c "$cut" 2> said-err; } | :
		eq "after a reader that left" "one two" "$(echo $(run -- sh -c "$cut"))"

		run -- sh -c "$WORK" > said-out
		# Something that it names is lost: once more.
		other "again" run --env B=1 -- sh -c "$WORK"
		rm "$(blob_path "$(put proj/out/id)")"
		rm -r proj/out
		run --env B=1 -- sh -c "$WORK" > said-out
		[ -s proj/out/id ] || fail "no output after a lost blob"
	done
	# A script that is named in the words, without isolation.
	echo 'cat /proc/sys/kernel/random/uuid > out/id; echo said; echo warned >&2' > script
	other "script" run -- sh "$T/script"
	same "script again" run -- sh "$T/script"
	echo ': x' >> script
	other "script changed" run -- sh "$T/script"

	expect 2 casbox run --cache --input proj -- true
	said "--cache needs --isolate"
	expect 2 casbox run --trust-host -- true
	casbox fsck
	eq "sandboxes left" "" "$(casbox sandbox list)"
	casbox umount
}
WAYS=--trust-host
[ -n "${TEST_PLAIN:-}" ] || WAYS="--isolate --trust-host"
each_user body
