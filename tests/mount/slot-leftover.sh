#!/bin/sh
# tests/mount/slot-leftover.sh - what was left behind keeps its tree, and nobody else gets it
. "$(dirname "$0")/../lib/common.sh"
need root fuse python3
alone

# In $box until standard input ends; says "ready", then what it sees when told to look.
cat > holder.py << 'PY'
import ctypes, mmap, os, socket, subprocess, sys
how, box = sys.argv[1], sys.argv[2]
held = []
child = None
if how == "cwd":
    os.chdir(box + "/d")
elif how == "directory":
    held.append(os.open(box + "/d", os.O_RDONLY | os.O_DIRECTORY))
elif how == "file":
    held.append(os.open(box + "/d/f", os.O_RDONLY))
elif how == "path":
    held.append(os.open(box + "/d/f", os.O_PATH))
elif how == "socket":
    a, b = socket.socketpair()
    fd = os.open(box + "/d", os.O_RDONLY | os.O_DIRECTORY)
    socket.send_fds(a, [b"x"], [fd])
    os.close(fd)
    held += [a, b]
elif how == "mapping":
    fd = os.open(box + "/d/f", os.O_RDONLY)
    held.append(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    os.close(fd)
elif how == "uring":
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))  # io_uring_setup
    fd = os.open(box + "/d/f", os.O_RDONLY)
    if ring < 0 or libc.syscall(427, ring, 2, (ctypes.c_int * 1)(fd), 1) < 0:
        print("no", flush=True)  # io_uring_register, IORING_REGISTER_FILES
        sys.exit(0)
    held.append(ring)
    os.close(fd)
elif how == "binary":
    child = subprocess.Popen([box + "/d/sleep", "1000"], cwd="/")
print("ready", flush=True)
sys.stdin.readline()
if how == "cwd":
    print(open("f").read().strip(), sorted(os.listdir(".")), os.path.exists("new"), flush=True)
elif how == "directory":
    print(open("f", opener=lambda p, f: os.open(p, f, dir_fd=held[0])).read().strip(),
          sorted(os.listdir(held[0])), flush=True)
elif how == "file":
    print(os.pread(held[0], 100, 0).decode().strip(), flush=True)
elif how == "socket":
    fd = socket.recv_fds(held[1], 1, 1)[1][0]
    print(sorted(os.listdir(fd)), flush=True)
elif how == "mapping":
    print(held[0][:].decode().strip(), flush=True)
else:
    print("", flush=True)
sys.stdin.readline()
if child:
    child.kill()
    child.wait()
PY

mkdir -p one/d one/out
echo first > one/d/f
cp "$(command -v sleep)" one/d/sleep
cp -a one two
echo second > two/d/f
echo new > two/d/new
one=$(put one)
two=$(put two)
mount_start
mkfifo in out

count() {
	casbox ctl config | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

for how in cwd directory file path socket mapping binary uring; do
	reused=$(count reused)
	busy=$(count busy)
	box=$(sandbox_new "$one" --id first --output out/)
	python3 holder.py $how "$box" < in > out &
	exec 3> in 4< out
	read -r line <&4
	if [ $how = uring ] && [ "$line" = no ]; then
		exec 3>&- 4<&-
		casbox sandbox remove first
		break # the kernel has no io_uring for us; it is the last
	fi
	eq "$how" ready "$line"
	echo mine > "$box/out/o"
	casbox sandbox remove first
	eq "$how: left in use" $((busy + 1)) "$(count busy)"
	box=$(sandbox_new "$two" --id second --output out/)
	eq "$how: not reused" "$reused" "$(count reused)"
	eq "$how: content" "second new" "$(cat "$box/d/f" "$box/d/new" | paste -sd ' ')"
	echo >&3
	read -r line <&4
	case $how in
	cwd) want="first ['f', 'sleep'] False" ;;
	directory) want="first ['f', 'sleep']" ;;
	file | mapping) want=first ;;
	socket) want="['f', 'sleep']" ;;
	*) want= ;;
	esac
	eq "$how: what was left behind sees" "$want" "$line"
	eq "$how: content" "second new" "$(cat "$box/d/f" "$box/d/new" | paste -sd ' ')"
	echo >&3
	exec 3>&- 4<&-
	wait $! || fail "$how: the holder failed"
	casbox sandbox remove second
	# Whatever it was, an unused one serves the next. Then all is thrown away.
	reused=$(($(count reused) + $(count forgotten)))
	box=$(sandbox_new "$one" --id third --output out/)
	[ "$(($(count reused) + $(count forgotten)))" -gt "$reused" ] || fail "$how: not reused afterwards"
	eq "$how: content" first "$(cat "$box/d/f")"
	[ ! -e "$box/d/new" ] || fail "$how: a name of the other tree"
	# Not idle: so that the next round begins with nothing retired.
	(cd "$box/d" && casbox sandbox remove third)
done

# A mount that the action made inside is in use, too.
box=$(sandbox_new "$one" --id first)
mount -t tmpfs tmpfs "$box/d"
busy=$(count busy)
casbox sandbox remove first
eq "mount inside: left in use" $((busy + 1)) "$(count busy)"
box=$(sandbox_new "$one" --id second)
eq "mount inside: content" first "$(cat "$box/d/f")"
casbox sandbox remove second
mount_stop
