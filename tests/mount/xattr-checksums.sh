#!/bin/sh
# tests/mount/xattr-checksums.sh - mount -o xattr: files tell their checksum, and nothing else (C41)
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3

body() {
	sample_tree tree
	root=$(put tree)
	mount_start -o xattr
	casbox ctl --mount "$MNT" config | grep -q '"xattr":true' || fail "config does not tell"
	cat > check.py <<'PY'
import errno, hashlib, os, sys
NAME = "user.checksum.sha256"
def fails(code, f, *args, **kw):
    try:
        f(*args, **kw)
    except OSError as e:
        assert e.errno in code, (f, args, e)
    else:
        raise AssertionError((f, args))
def raw(call, size, *words):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    buf = ctypes.create_string_buffer(b"\x7f" * 300)
    got = getattr(libc, call)(*[w.encode() for w in words], buf if size else None, size)
    return (got, buf.raw[:max(got, 0) if size else 0]) if got >= 0 else (-ctypes.get_errno(), b"")
for line in open(sys.argv[1]):
    kind, path = line.rstrip("\n").split(" ", 1)
    if kind == "file":
        want = hashlib.sha256(open(path, "rb").read()).hexdigest().encode()
        assert os.getxattr(path, NAME) == want, path
        assert os.listxattr(path) == [NAME], (path, os.listxattr(path))
        assert raw("getxattr", 0, path, NAME) == (64, b""), path
        assert raw("getxattr", 64, path, NAME) == (64, want), path
        assert raw("getxattr", 300, path, NAME) == (64, want), path
        assert raw("getxattr", 63, path, NAME)[0] == -errno.ERANGE, path
        assert raw("getxattr", 1, path, NAME)[0] == -errno.ERANGE, path
        assert raw("listxattr", 0, path) == (21, b""), raw("listxattr", 0, path)
        assert raw("listxattr", 21, path) == (21, NAME.encode() + b"\0"), path
        assert raw("listxattr", 20, path)[0] == -errno.ERANGE, path
        fd = os.open(path, os.O_RDONLY)
        assert os.getxattr(fd, NAME) == want
        os.close(fd)
    else:
        fails([errno.ENODATA], os.getxattr, path, NAME, follow_symlinks=False)
        assert os.listxattr(path, follow_symlinks=False) == [], path
        assert raw("llistxattr", 0, path) == (0, b""), path
    for name in ("user.other", "user.checksum.sha25", "user.checksum.sha2566", "security.capability"):
        fails([errno.ENODATA], os.getxattr, path, name, follow_symlinks=False)
    ro = [errno.EROFS, errno.EPERM]
    fails(ro, os.setxattr, path, NAME, b"x", follow_symlinks=False)
    fails(ro, os.setxattr, path, "user.other", b"x", follow_symlinks=False)
    fails(ro, os.removexattr, path, NAME, follow_symlinks=False)
PY
	sandbox=$(sandbox_new "$root" --output out/ --id bound)
	beside=$(sandbox_new "$root" --output many/made --id beside)
	blob=$(put tree/bin/tool)
	at=$MNT/cas/directory/$(dashed "$root")
	for dir in "$sandbox" "$at"; do
		echo "file $dir/many/file-1"
		echo "file $dir/bin/tool"
		echo "file $dir/empty"
		echo "file $dir/many/empty-too"
		echo "dir $dir/deep"
		echo "dir $dir"
		echo "link $dir/dangling"
	done > list
	cat >> list <<LIST
file $MNT/cas/file/$(dashed "$blob")
file $MNT/cas/executable/${blob%/*}
file $MNT/cas/file/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-0
dir $MNT/cas/file
dir $MNT
dir $MNT/ac
dir $MNT/.casbox/version
LIST
	python3 check.py list || fail "answers"
	# Through an overlay, and what is written there is its own.
	eq "beside outputs" "$(sha256sum < tree/many/file-2 | cut -c 1-64)" \
		"$(python3 -c 'import os,sys; print(os.getxattr(sys.argv[1], "user.checksum.sha256").decode())' "$beside/many/file-2")"
	echo new > "$beside/many/made"
	python3 -c 'import os,sys
assert os.listxattr(sys.argv[1]) == [], os.listxattr(sys.argv[1])' "$beside/many/made" || fail "an output has a checksum"
	# Work as without: exec, copies out and in, captures.
	eq "exec" "ran a" "$("$sandbox/bin/tool" a)"
	cp -r "$sandbox/deep" "$sandbox/out/" 2> said
	eq "cp says" "" "$(cat said)"
	expect 0 casbox sandbox finish bound
	expect 0 casbox sandbox finish beside
	grep -q 'many/made' "$T/out" || fail "finish: $(cat "$T/out")"
	casbox sandbox remove bound
	casbox sandbox remove beside
	mount_stop

	# In the configuration, for a mount in the background too; another word is refused.
	expect 2 casbox mount -o noatime "$MNT"
	echo 'option = xattr' > "$STORE/config"
	casbox mount "$MNT"
	python3 -c 'import os,sys
assert len(os.getxattr(sys.argv[1], "user.checksum.sha256")) == 64' "$at/many/file-3" || fail "by configuration"
	casbox umount "$MNT"
	rm "$STORE/config"
	mount_start
	"$FSCHECK" call 'EOPNOTSUPP' getxattr "$at/many/file-3"
	"$FSCHECK" call 'EOPNOTSUPP|OK' listxattr "$at/many/file-3"
	mount_stop
}
each_user body
