#!/bin/sh
# tests/mount/view-command.sh - cas/command: a script whose program gets every byte, and no more
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3

body() {
	mkdir -p tree/bin "tree/work dir/it's"
	cp "$FSCHECK" tree/bin/check
	cp "$FSCHECK" "tree/bin/a=b"
	cp "$FSCHECK" "tree/work dir/it's/-x"
	cp "$FSCHECK" "tree/bin/-"
	chmod 755 tree/bin/* "tree/work dir/it's/-x"
	root=$(put tree)
	mount_start
	MNT=$MNT CASBOX=$CASBOX TREE=$MNT/cas/directory/$(dashed "$root") PYTHONPATH=$HERE/../lib \
		python3 -B - <<'PY' || fail "scripts"
import os, random, subprocess, sys

from reapi import data, varint

mnt, tree = os.environ["MNT"], os.environ["TREE"]
path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def put(raw):
    with open("message", "wb") as f:
        f.write(raw)
    text = subprocess.check_output([os.environ["CASBOX"], "put", "message"], text=True).strip()
    return text.replace("/", "-")


def check(argv, env, cwd=b""):
    raw = b"".join(data(1, a) for a in argv)
    raw += b"".join(data(2, data(1, k) + data(2, v)) for k, v in env)
    raw += data(6, cwd) if cwd else b""
    script = mnt + "/cas/command/" + put(raw)
    assert os.stat(script).st_mode & 0o7777 == 0o555, oct(os.stat(script).st_mode)
    assert os.stat(script).st_size == len(open(script, "rb").read())
    # As a program, and as a file for sh; the caller's environment is not to be seen.
    for how in ([script], ["sh", script]):
        got = subprocess.run(how, cwd=tree, stdout=subprocess.PIPE, env={
            "PATH": path, "CDPATH": "/tmp:/", "ENV": "/dev/null", "LEAK": "1", "A": "caller"})
        assert got.returncode == 0, (how, argv, got.returncode)
        args, given = got.stdout.split(b"--env--\0")
        want = b"".join(a + b"\0" for a in argv[2:])
        assert args == want, (argv, args)
        want = sorted(k + b"=" + v for k, v in env)
        assert sorted(given.split(b"\0")[:-1]) == want, (env, given)


check([b"bin/check", b"told"], [])
check([b"bin/check", b"told", b""], [(b"A", b"")])
check([b"bin/check", b"told", b"'", b"''", b"\\'", b'"', b"$HOME", b"`id`", b"$(id)", b"a\nb",
       b"\n", b"x\n", b"*", b"~", b"!x", b"a b", b"\t", b"-n", b"--", b"#", b"a=b", b"\\", b"\\n",
       b"; id", b"& id", b"|", b">x", b"{a,b}", b"[a]", b"?"],
      [(b"A", b"it's"), (b"B", b"$A\n"), (b"C=".strip(b"="), b"=x="), (b"odd name", b"1"),
       (b"-i", b"2"), (b"a-b", b"3"), (b"'", b"'"), (b"IFS", b"x"), (b"LD_BIND_NOW", b"1")])
every = bytes(range(1, 256))
check([b"bin/check", b"told", every, every[::-1]], [(b"EVERY", every), (b"\xff", b"\x81\x88")])
# Names that env would take for something else.
check([b"bin/a=b", b"told", b"x=y"], [])
check([b"bin/a=b", b"told", b"x=y"], [(b"V", b"w")])
check([b"a=b", b"told", b"x"], [(b"PATH", tree.encode() + b"/bin:/usr/bin:/bin")])
check([b"-", b"told", b"x"], [(b"PATH", tree.encode() + b"/bin:/usr/bin:/bin")])
check([b"-", b"told"], [(b"V", b"1"), (b"PATH", tree.encode() + b"/bin:/usr/bin:/bin")])
# The working directory, and a program that is found from there, or looks like an option.
check([b"../../bin/check", b"told", b"y"], [], b"work dir/it's")
check([b"./-x", b"told", b"-x"], [(b"Z", b"z")], b"work dir/./it's/")
check([b"-x", b"told"], [(b"PATH", b".")], b"work dir/it's")
random.seed(7)
for n in range(60):
    def some(least=0):
        return bytes(random.randrange(1, 256) for _ in range(random.randrange(least, 40)))
    names = {some(1).replace(b"=", b"_") for _ in range(random.randrange(6))}
    check([b"bin/check", b"told"] + [some() for _ in range(random.randrange(9))],
          [(k, some()) for k in sorted(names)])
check([b"bin/check", b"told", b"x" * 100000], [(b"LONG", b"y" * 100000)])

# Nowhere to go: nothing runs.
script = mnt + "/cas/command/" + put(data(1, b"bin/check") + data(1, b"told") + data(6, b"nowhere"))
assert subprocess.run([script], cwd=tree, stderr=subprocess.DEVNULL).returncode == 126
# The outputs are told, and cannot end the comment.
text = open(mnt + "/cas/command/" + put(data(1, b"true") + data(7, b"a\nrm -rf x"))).read()
assert "\n# output: a\\x0arm -rf x\n" in text, text
PY
	# What is no Command, and what is not there.
	printf 'no command' > junk
	junk=$(put junk)
	"$FSCHECK" call EIO stat "$MNT/cas/command/$(dashed "$junk")"
	tail -n 3 "$T/daemon.log" | grep -q "${junk%/*}.* is no Command" || fail "the log does not say why"
	eq "not enumerable" "" "$(ls "$MNT/cas/command")"
	mount_stop
}
each_user body
