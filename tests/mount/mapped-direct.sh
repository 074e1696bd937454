#!/bin/sh
# tests/mount/mapped-direct.sh - C40: mappings, direct I/O, shared objects, linkers, passthrough
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

cat > part.c <<'END'
int answer(void);
int answer(void)
{
	return 42;
}
END
cat > main.c <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *so = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*answer)(void) = so ? (int (*)(void))dlsym(so, "answer") : NULL;

	printf("%d\n", answer ? answer() : -1);
	return answer == NULL;
}
END

# link_in DIR LINKER...: link a shared object and a program there, load and run them.
link_in() {
	dir=$1
	shift
	for ld; do
		command -v "ld.$ld" > /dev/null || continue
		cc -fuse-ld="$ld" -shared -fPIC -o "$dir/part-$ld.so" part.c
		cc -fuse-ld="$ld" -o "$dir/prog-$ld" main.c -ldl
		eq "linked by $ld" 42 "$("$dir/prog-$ld" "$dir/part-$ld.so")"
	done
}

on_engine() {
	"$FSSTRESS" direct "$3" > "$T/direct-$1" || fail "$1: direct I/O: $(cat "$T/direct-$1")"
	# What we serve takes anything.
	case $1 in served-*) sed -i 's/odd \(.*\) OK$/odd \1 EINVAL/' "$T/direct-$1" ;; esac
	diff "$T/direct" "$T/direct-$1" || fail "$1: direct I/O differs from the disk below"
	"$FSSTRESS" mappings "$3" || fail "$1: mappings"
	cp "$T/tree/src/big" "$3/big"
	"$FSSTRESS" mixed-opens "$3/big" "$T/tree/src/big" || fail "$1: an output opened in many ways"
	"$FSSTRESS" mixed-opens "$2/src/big" "$T/tree/src/big" || fail "$1: an input opened in many ways"
	if command -v cc > /dev/null; then
		case $1 in
		*bind) link_in "$3" $(full_or bfd 'bfd gold lld') ;;
		*beside) link_in "$3" $(full_or gold 'bfd gold lld') ;;
		*root) link_in "$3" $(full_or lld 'bfd gold lld') ;;
		esac
		eq "$1: an input loaded" 42 "$("$2/src/prog" "$2/src/part.so")"
	fi
}

# Through the cache view, where the kernel may read the blob's file itself.
on_blobs() {
	view=$MNT/cas/directory/$(dashed "$root")/src
	"$FSSTRESS" mixed-opens "$MNT/cas/file/$(dashed "$(put "$T/tree/src/big")")" "$T/tree/src/big"
	"$FSSTRESS" mixed-opens "$view/big" "$T/tree/src/big"
	cat "$T/tree/src/many"/* > "$T/many"
	for round in 1 2 3; do
		cat "$view/many"/* | cmp - "$T/many"
		cat "$view/many"/* | cmp - "$T/many" &
		pid=$!
		cat "$view/many"/* | cmp - "$T/many"
		wait $pid
	done
	if [ -e "$view/prog" ]; then
		eq "a program and its object" 42 "$("$view/prog" "$view/part.so")"
		prog=$(dashed "$(put "$T/tree/src/prog")")
		eq "as blobs" 42 "$("$MNT/cas/executable/$prog" "$MNT/cas/executable/$(dashed "$(put "$T/tree/src/part.so")")")"
	fi
}

body() {
	mkdir -p "$T/tree/src/many" "$T/plain"
	head -c 2500001 /dev/urandom > "$T/tree/src/big"
	for i in $(seq 200); do
		echo "content $i" > "$T/tree/src/many/$i"
	done
	if command -v cc > /dev/null; then
		cc -shared -fPIC -o "$T/tree/src/part.so" part.c
		cc -o "$T/tree/src/prog" main.c -ldl
	fi
	"$FSSTRESS" direct "$T/plain" > "$T/direct"
	root=$(put "$T/tree")
	mount_start
	each_engine "$T/tree" on_engine
	on_blobs
	mount_stop
	mount_start --without passthrough
	on_blobs
	mount_stop
}
each_user body
