#!/bin/sh
# tests/mount/run-cache-host.sh - run --cache: what the command gets of the host is in the key, or the same for all
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay bwrap
bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null ||
	skip "bubblewrap may not make namespaces"

# gives WANT COMMAND...: a run's output, whether it was run or answered.
gives() {
	want=$1
	shift
	"$@" 2> said-err || fail "$*: status $?: $(cat said-err)"
	eq "$*" "$want" "$(cat proj/out)"
}

run() {
	casbox run --cache --input proj --output out "$@"
}

mkdir proj tools
ln -s tools link
echo one > tools/data
printf '#!/bin/sh\necho one > out\n' > tools/tool
chmod 755 tools/tool

# A path of the host that is a link: what is shown there is what it leads to.
gives one run --isolate --host-path "$T/link" -- cp "$T/link/data" out
echo two, changed > tools/data
gives "two, changed" run --isolate --host-path "$T/link" -- cp "$T/link/data" out

# Names that only look like those of the profile.
away=/usr/..$T/tools
PATH=$away:$PATH
gives one run --trust-host -- tool
gives one run --trust-host -- "$away/tool"
printf '#!/bin/sh\necho two > out\n:\n' > tools/tool
gives two run --trust-host -- tool
printf '#!/bin/sh\necho three > out\n:\n' > tools/tool
gives three run --trust-host -- "$away/tool"

# Nobody's input, nobody's umask.
for way in --isolate --trust-host; do
	rm -f proj/out
	echo first > typed
	gives "" run $way -- sh -c 'cat > out' < typed
	umask 077
	gives 0022 run $way -- sh -c 'umask > out'
	umask 022
done
gives first casbox run --input proj --output out -- sh -c 'cat > out' < typed
casbox umount
