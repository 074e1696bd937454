#!/bin/sh
# What an exact trace says is what strace sees of the same command: a generated header and a
# compiler, a Python package. TRACE_SOURCES=DIR adds three real builds: lua, a Python
# package's bytecode, and jq or zlib with generated headers, from source trees in DIR.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount strace python3 cc make

# check NAME TREE OPTION... -- COMMAND...: run it in TREE twice over, and compare.
check() {
	name=$1
	tree=$2
	shift 2
	options=
	while [ "$1" != -- ]; do
		options="$options $1"
		shift
	done
	shift
	root=$(put "$tree")
	trace=$T/trace-$name
	log=$T/strace-$name
	# shellcheck disable=SC2086
	"$CASBOX" run --root "$root" --id "box-$name" --trace exact --trace-dir "$trace" $options \
		-- strace -f -y -o "$log" "$@" > "$T/out-$name" 2>&1 ||
		fail "$name: status $?: $(tail -n 5 "$T/out-$name")"
	at=$(sed -n 's/.*"path": "\(.*traced.*\)".*/\1/p' "$trace/status")
	# shellcheck disable=SC2046
	python3 "$HERE/../lib/trace.py" "$log" "$at" "$tree" "$trace" $(
		sed -n '/"kind": "bind"/{n;s/.*"path": "\(.*\)".*/\1/p}' "$trace/status") ||
		fail "$name: the trace and strace differ"
	# What nobody read, in the form that another tool takes: no notes, and a path a line.
	grep -v '^# ' "$trace/inputs-unread" > "$T/unread" || :
	cmp "$T/unread" "$trace/unused_inputs_list" || fail "$name: unused_inputs_list"
}

make_c() {
	mkdir -p "$1/inc/deep" "$1/src" "$1/tools"
	printf '%s\n\t%s\n' 'prog: main.o util.o' 'cc -o $@ main.o util.o' \
		'config.h: tools/gen src/config.in' './tools/gen src/config.in > $@' \
		'main.o: src/main.c config.h' \
		'cc -I. -Iinc -Imissing -Iinc/deep -c -o $@ src/main.c' \
		'util.o: src/util.c' 'cc -Iinc -I. -c -o $@ src/util.c' > "$1/Makefile"
	echo '-include none.d' >> "$1/Makefile"
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nsed "s/@V@/7/" "$1"\n' > "$1/tools/gen"
	chmod 755 "$1/tools/gen"
	echo '#define V @V@' > "$1/src/config.in"
	printf '#include "config.h"\n#include "util.h"\n#include <deep.h>\nint main(void) { return util(V) - 7 + DEEP; }\n' \
		> "$1/src/main.c"
	printf '#include "util.h"\nint util(int v) { return v; }\n' > "$1/src/util.c"
	echo 'int util(int v);' > "$1/inc/util.h"
	echo '#define DEEP 0' > "$1/inc/deep/deep.h"
	ln -s util.h "$1/inc/alias.h"
	ln -s inc "$1/include"
	echo '#include "include/alias.h"' >> "$1/src/util.c"
	echo never > "$1/inc/never.h"
	echo never > "$1/README"
}

make_python() {
	mkdir -p "$1/pkg/sub"
	echo 'import pkg.sub.b, json' > "$1/pkg/__init__.py"
	: > "$1/pkg/sub/__init__.py"
	printf 'import os\nprint(open("data.txt").read(), os.listdir("pkg/sub"))\n' > "$1/pkg/sub/b.py"
	echo 'import nothing_like_this' > "$1/pkg/never.py"
	echo hello > "$1/data.txt"
	printf 'import pkg\ntry:\n    import absent\nexcept ImportError:\n    pass\n' > "$1/main.py"
	ln -s data.txt "$1/link.txt"
}

# A program and its loader among the inputs, and a shared library.
make_loader() {
	mkdir -p "$1/bin" "$1/lib" "$1/src"
	printf 'int answer(void);\nint main(void) { return answer() - 42; }\n' > "$1/src/main.c"
	echo 'int answer(void) { return 42; }' > "$1/src/answer.c"
	loader=$(ldd /bin/sh | sed -n 's|^[[:space:]]*\(/[^ ]*ld-[^ ]*\) .*|\1|p')
	[ -e "$loader" ] || return 1
	cp -L "$loader" "$1/lib/loader"
	cc -shared -fPIC -o "$1/lib/libanswer.so" "$1/src/answer.c"
	cc -o "$1/bin/prog" "$1/src/main.c" -L"$1/lib" -lanswer -Wl,-rpath,'$ORIGIN/../lib' \
		-Wl,--dynamic-linker,lib/loader
}

make_node() {
	mkdir -p "$1/node_modules/dep/lib" "$1/node_modules/unused"
	echo '{"name": "dep", "main": "lib/index.js"}' > "$1/node_modules/dep/package.json"
	echo 'module.exports = require("./more")' > "$1/node_modules/dep/lib/index.js"
	echo 'module.exports = 7' > "$1/node_modules/dep/lib/more.js"
	echo 'module.exports = 8' > "$1/node_modules/unused/index.js"
	echo 'require("fs").writeFileSync("out/n", String(require("dep")))' > "$1/main.js"
}

mount_start
make_c "$T/c"
check c "$T/c" --output prog --output config.h -- make prog
for f in inc/never.h README; do
	grep -qx "$f" "$T/trace-c/inputs-unread" || fail "$f was not read"
done
grep -qx none.d "$T/trace-c/lookups-failed" || fail "none.d was looked for"
grep -qx missing "$T/trace-c/lookups-failed" || fail "-Imissing was looked for"
# That the comparison can fail.
at=$(sed -n 's/.*"path": "\(.*traced.*\)".*/\1/p' "$T/trace-c/status")
for list in inputs-read inputs-unread lookups-failed; do
	cp -r "$T/trace-c" "$T/cut"
	sed -i '2d' "$T/cut/$list"
	! python3 "$HERE/../lib/trace.py" "$T/strace-c" "$at" "$T/c" "$T/cut" > "$T/out" ||
		fail "a line less in $list is not seen"
	rm -r "$T/cut"
done
if make_loader "$T/loader"; then
	check loader "$T/loader" --output out/ -- bin/prog
	for f in bin/prog lib/loader lib/libanswer.so; do
		grep -qx "$f" "$T/trace-loader/inputs-read" || fail "$f was executed"
	done
fi
if command -v node > "$T/out"; then
	make_node "$T/node"
	check node "$T/node" --output out/ -- node main.js
	grep -qx node_modules/unused/index.js "$T/trace-node/inputs-unread" || fail "node: unused"
fi
make_python "$T/python"
check python "$T/python" --output out/ -- python3 -B main.py
check compile "$T/python" --output pkg/sub/__pycache__ -- python3 -m compileall -q pkg/sub

if [ -n "${TRACE_SOURCES:-}" ]; then
	cp -r "$TRACE_SOURCES/lua-pristine" "$T/lua"
	check lua "$T/lua" --output src/lua --output src/luac --output src/liblua.a -- \
		make -C src linux-noreadline
	cp -r "$TRACE_SOURCES/zlib-1.2.13.dfsg" "$T/zlib"
	check zlib "$T/zlib" --writable all --output libz.a -- sh -c './configure && make libz.a'
	cp -r "$(python3 -c 'import json; print(json.__path__[0])')/.." "$T/lib"
	find "$T/lib" -name __pycache__ -prune -exec rm -r {} +
	check bytecode "$T/lib" --output json/__pycache__ --output email/__pycache__ -- \
		python3 -m compileall -q json email
fi
mount_stop
