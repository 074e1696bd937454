#!/bin/sh
# tests/mount/view-tree.sh - cas/tree: a Tree message is the directory that it tells
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3

body() {
	sample_tree tree
	mkdir -p tree/same1/sub tree/same2/sub
	echo equal > tree/same1/sub/f
	echo equal > tree/same2/sub/f
	root=$(put tree)
	mount_start

	# The Tree of a directory that an action made.
	expect 0 casbox run --root "$root" --output copy --result res.pb -- \
		sh -c 'mkdir copy && cp -a many deep empty-dir bin same1 same2 dangling to-dir zeros copy/'
	tree=$(python3 "$HERE/../lib/reapi.py" show res.pb | sed -n 's/^dir copy \([^ ]*\) .*/\1/p')
	made=$(python3 "$HERE/../lib/reapi.py" show res.pb | sed -n 's/^dir copy [^ ]* //p')
	at=$MNT/cas/tree/$(dashed "$tree")
	trees_equal "$MNT/cas/directory/$(dashed "$made")" "$at"
	"$FSCHECK" stat "$at" mode=0755 type=d
	"$FSCHECK" stat "$at/bin/tool" mode=0555
	"$FSCHECK" dirents "$at"
	"$FSCHECK" dirents "$at/many"
	"$FSCHECK" inos "$at"
	"$FSCHECK" call EROFS mkdir "$at/new"
	"$FSCHECK" call ENOENT stat "$at/nothing"
	eq "run from it" "ran x" "$("$at/bin/tool" x)"
	eq "by hash alone" equal "$(cat "$MNT/cas/tree/${tree%/*}/same2/sub/f")"
	# Its directories need not be blobs: they are in the message.
	casbox pin "$tree"
	casbox sandbox list | cut -f 1 | while read -r id; do casbox sandbox remove "$id"; done

	# The empty one, and what others write: children in any order, twice, and some too many.
	eq "the empty Tree" "" "$(ls -A "$MNT/cas/tree/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-0")"
	CASBOX=$CASBOX PYTHONPATH=$HERE/../lib python3 -B - "$MNT" <<'PY' || fail "Trees"
import hashlib, os, subprocess, sys
from reapi import data, varint
mnt = sys.argv[1]
def digest(raw):
    return data(1, hashlib.sha256(raw).hexdigest().encode()) + (varint(16) + varint(len(raw)) if raw else b"")
def put(raw):
    open("message", "wb").write(raw)
    return subprocess.check_output([os.environ["CASBOX"], "put", "message"], text=True).strip().replace("/", "-")
def subdir(name, raw):
    return data(2, data(1, name) + data(2, digest(raw)))
def file(name, raw):
    return data(1, data(1, name) + data(2, digest(raw)))
def tree(raw):
    return mnt + "/cas/tree/" + put(raw)
put(b"leaf text")
leaf = file(b"leaf", b"leaf text")
mid = subdir(b"a", leaf) + subdir(b"b", leaf)
top = subdir(b"empty", b"") + subdir(b"x", mid)
# data(3): a symlink
top += data(3, data(1, b"z") + data(2, b"../up"))
def walk(at):
    found = []
    for base, dirs, names in os.walk(at):
        for n in dirs + names:
            p = os.path.join(base, n)
            found.append(os.path.relpath(p, at) + ("@" + os.readlink(p) if os.path.islink(p) else ""))
    return sorted(found)
want = ["empty", "x", "x/a", "x/a/leaf", "x/b", "x/b/leaf", "z@../up"]
assert walk(tree(data(1, top) + data(2, mid) + data(2, leaf))) == want
assert walk(tree(data(2, leaf) + data(2, leaf) + data(1, top) + data(2, mid))) == want
assert walk(tree(data(2, b"") + data(1, top) + data(2, leaf) + data(2, mid) + data(2, file(b"o", b"")))) == want
assert open(tree(data(1, top) + data(2, mid) + data(2, leaf)) + "/x/b/leaf").read() == "leaf text"
assert walk(tree(data(2, leaf))) == []
def refused(why, raw):
    try:
        os.listdir(tree(raw))
    except OSError as e:
        assert e.errno == 5, (why, e)
    else:
        raise AssertionError(why)
refused("a child is missing", data(1, top) + data(2, mid))
refused("two roots", data(1, leaf) + data(1, leaf))
refused("cut off", (data(1, top) + data(2, mid) + data(2, leaf))[:-1])
refused("unknown field", data(1, leaf) + data(3, leaf))
refused("no message", b"\xff" * 40)
refused("a wrong type", varint(8) + varint(7))
refused("unsorted", data(1, file(b"b", b"1") + file(b"a", b"1")))
refused("twice", data(1, file(b"a", b"1") + subdir(b"a", b"")))
for name in (b"", b".", b"..", b"a/b", b"n" * 256, b"\xff"):
    refused("name %r" % name, data(1, file(name, b"1")))
    refused("child name %r" % name, data(1, subdir(b"d", file(name, b"1"))) + data(2, file(name, b"1")))
PY
	grep -q "is no Tree: .*is not in the Tree" "$T/daemon.log" || fail "the log does not say why"
	eq "still there" equal "$(cat "$at/same1/sub/f")"
	casbox unpin "$tree"
	mount_stop
}
body
