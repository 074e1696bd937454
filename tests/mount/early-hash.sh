#!/bin/sh
# tests/mount/early-hash.sh - outputs hashed when they are closed; what changes later is seen
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3

# Everything that makes a hash stale, each on a file that was hashed before (if at all).
cat > spoil.py << 'PY'
import mmap, os, sys, time
out = sys.argv[1]

def path(name):
    return os.path.join(out, name)

def write(name, text):
    with open(path(name), "w") as f:
        f.write(text)

os.mkdir(path("sub"))
for name in ("same-size", "truncated", "appended", "renamed", "replaced", "gone", "linked",
             "mapped", "second", "sub/deep", "mode", "kept"):
    write(name, "first " + name + "\n")
    if name in ("mapped", "second"):
        continue
mapped = os.open(path("mapped"), os.O_RDWR)
mapping = mmap.mmap(mapped, 0, mmap.MAP_SHARED)
mapping[0:1] = b"M"
os.close(mapped)
second = os.open(path("second"), os.O_WRONLY | os.O_APPEND)
first = os.open(path("second"), os.O_WRONLY | os.O_APPEND)
os.close(first)
print("written", flush=True)
sys.stdin.readline()
st = os.stat(path("same-size"))
write("same-size", "other same-size\n")
os.utime(path("same-size"), ns=(st.st_atime_ns, st.st_mtime_ns))
os.truncate(path("truncated"), 5)
with open(path("appended"), "a") as f:
    f.write("more\n")
os.rename(path("renamed"), path("renamed-to"))
write("new", "replacement\n")
os.rename(path("new"), path("replaced"))
os.remove(path("gone"))
os.link(path("linked"), path("linked-to"))
mapping[1:2] = b"P"
os.write(second, b"by the second writer\n")
os.chmod(path("mode"), 0o755)
write("sub/late", "late\n")
print("spoilt", flush=True)
sys.stdin.readline()
mapping[2:3] = b"!"
os.write(second, b"at the very end\n")
print("done", flush=True)
sys.stdin.readline()
PY

# Files written, renamed, mapped and removed at random, to the end.
cat > scribble.py << 'PY'
import mmap, os, random, sys, time
out, seconds = sys.argv[1], float(sys.argv[2])
rnd = random.Random(7)
end = time.monotonic() + seconds
names = ["f%d" % i for i in range(40)]
while time.monotonic() < end:
    a, b = (os.path.join(out, n) for n in rnd.sample(names, 2))
    try:
        op = rnd.randrange(6)
        if op < 2:
            with open(a, "wb") as f:
                f.write(rnd.randbytes(rnd.choice((10, 5000, 200000))))
        elif op == 2:
            fd = os.open(a, os.O_RDWR)
            st = os.fstat(fd)
            with mmap.mmap(fd, 0) as m:
                m[rnd.randrange(len(m))] = rnd.randrange(256)
            os.close(fd)
            os.utime(a, ns=(st.st_atime_ns, st.st_mtime_ns))
        elif op == 3:
            os.rename(a, b)
        elif op == 4:
            fd = os.open(a, os.O_WRONLY)
            os.pwrite(fd, b"x", rnd.randrange(1000))
            os.close(fd)
        else:
            os.remove(a)
    except (FileNotFoundError, ValueError):
        pass
    time.sleep(rnd.choice((0, 0, 0.001, 0.02)))
PY

count() {
	casbox ctl stats | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

# hashed_is N: that many files were hashed since `base`; none without fanotify.
hashed() {
	[ $(($(count early_hashed) - base)) -ge "$1" ]
}

# finish_equals ID OUT: what is captured is what lay there.
finish_equals() {
	rm -rf "$T/want"
	cp -a "$2" "$T/want"
	casbox sandbox finish "$1" > "$T/finish" || fail "finish $1"
	digest=$(sed -n 's|^out/*\t||p' "$T/finish")
	trees_equal "$T/want" "$MNT/cas/directory/$(dashed "$digest")"
	casbox sandbox remove "$1"
	await nothing_known
}

# What is known of files goes with their sandbox; one that is being hashed a moment later.
nothing_known() {
	[ "$(count early_known)" -eq 0 ]
}

spoilt() {
	box=$(sandbox_new "$root" --id spoil --output "$1")
	mkdir -p "$box/out"
	base=$(count early_hashed)
	python3 spoil.py "$box/out" < in > answers &
	exec 3> in 4< answers
	read -r line <&4
	eq "answer" written "$line"
	[ "$fanotify" != yes ] || await hashed 10
	sleep 0.2
	echo >&3
	read -r line <&4
	sleep 0.2
	echo >&3
	read -r line <&4
	eq "answer" "done" "$line"
	used=$(count early_used)
	[ "$fanotify" != yes ] || [ "$(count early_known)" -ge 8 ] ||
		fail "what was hashed is not known"
	finish_equals spoil "$box/out"
	[ "$fanotify" != yes ] || [ "$(count early_used)" -gt "$used" ] ||
		fail "nothing that was hashed early was of use"
	echo >&3
	exec 3>&- 4<&-
	wait $! || fail "the writer failed"
}

body() {
	mkdir -p "$T/tree"
	echo input > "$T/tree/input"
	root=$(put "$T/tree")
	[ -p in ] || mkfifo in answers
	for how in with without; do
		if [ $how = with ]; then mount_start; else mount_start --without fanotify; fi
		fanotify=$(sed -n 's/^fanotify = //p' "$MNT/.casbox/config")
		case $how:${TEST_PLAIN:+plain} in
		with:plain) eq "fanotify" "no (needs CAP_SYS_ADMIN outside of user namespaces)" "$fanotify" ;;
		without:*) eq "fanotify" "no (forced off)" "$fanotify" ;;
		esac
		spoilt out/
		spoilt out
		box=$(sandbox_new "$root" --id random --output out/)
		python3 scribble.py "$box/out" "$(full_or 1 30)"
		finish_equals random "$box/out"

		# Not an output: nobody hashes it, and nothing of it is stored.
		box=$(sandbox_new "$root" --id stray --output d/out)
		echo "stray $how" > "$box/d/other"
		echo "declared $how" > "$box/d/out"
		base=$(count early_hashed)
		sleep 0.3
		stray=$(blob_path "$(echo "stray $how" | sha256sum | cut -d' ' -f1)/0")
		casbox sandbox finish stray > /dev/null 2>&1
		[ ! -e "$stray" ] || fail "what is no output was stored"
		casbox sandbox remove stray

		# Many files may get one inode number, one after the other.
		box=$(sandbox_new "$root" --id reused --output out/)
		base=$(count early_hashed)
		for i in 1 2 3 4 5 6; do
			echo "file $i" > "$box/out/file"
			[ "$fanotify" != yes ] || await hashed $i
			rm "$box/out/file"
		done
		finish_equals reused "$box/out"

		# The daemon dies after hashing.
		box=$(sandbox_new "$root" --id killed --output out/)
		echo before > "$box/out/file"
		echo before > "$box/out/other"
		sleep 0.3
		mount_kill
		echo after > "$STORE/sandboxes/killed/upper/0/u/file"
		if [ $how = with ]; then mount_start; else mount_start --without fanotify; fi
		finish_equals killed "$box/out"
		mount_stop
		eq "left open or locked" "" "$(find "$STORE" -name '.tmp-*' | head -n 3)"
	done
	expect 0 casbox fsck
}
each_user body
