# tests/lib/hostile.sh - what a hostile script in isolation tries

# Each line of output is something reached. Its words: MNT STORE SANDBOX PID PORT SECRET.
hostile() {
	cat << 'HOSTILE'
mnt=$1 store=$2 sandbox=$3 pid=$4 port=$5 secret=$6
exec 2> /dev/null
reached() { echo "reached $*"; }
# Places, by name, through links, through whatever /proc leads to.
for p in "$mnt" "$store" "$mnt/.casbox/control" "$mnt/cas" "$sandbox" "$secret" /root /home \
	/var/lib /run /sys /etc/shadow /etc/ssl/private; do
	[ ! -e "$p" ] || reached "$p"
	ln -sfn "$p" out/link
	[ ! -e out/link ] || reached "$p by a link"
	for root in /proc/1/root /proc/self/root /proc/1/cwd/.. /proc/$$/root/..; do
		[ ! -e "$root$p" ] || reached "$p by $root"
	done
done
rm -f out/link
[ -d ../build/src ] && [ ! -e ../sandboxes ] && [ ! -e ../../.casbox ] || reached "above the sandbox"
[ "$(tr '\0' '\n' < /proc/1/environ | grep -c SECRET)" = 0 ] || reached "the environment of bwrap"
[ -z "${SECRET:-}" ] || reached "our environment"
[ ! -e /proc/self/fd/9 ] || reached "a descriptor"
# Processes, memory, tracing.
kill -0 "$pid" && reached "a process of the host"
grep -q sleep "/proc/$pid/status" && reached "/proc of the host"
[ "$(ls /proc | grep -c '^[0-9]')" -lt 15 ] || reached "many processes"
python3 - "$pid" << 'PY' && reached "ptrace"
import ctypes, sys
libc = ctypes.CDLL(None)
sys.exit(0 if libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0 else 1)
PY
# The network, abstract sockets, names.
python3 - "$port" << 'PY' && reached "a port of the host"
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
PY
python3 - "$port" << 'PY' && reached "an abstract socket"
import socket, sys
socket.socket(socket.AF_UNIX).connect("\0casbox-test-" + sys.argv[1])
PY
[ "$(tail -n +3 /proc/net/dev | grep -vc '^ *lo:')" = 0 ] || reached "an interface"
[ "$(uname -n)" = casbox ] || reached "the host's name"
# Privileges, mounts, the kernel's switches, devices, limits.
for f in /usr/bin/env /etc/passwd /usr/casbox-was-here /bin/new /new; do
	(: >> $f) && reached "write $f"
done
(cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness) && reached "/proc/sys"
[ -z "$(find /proc/sys /proc/sysrq-trigger /proc/irq -type f -writable | head -n 1)" ] || reached "a switch"
mount -t tmpfs none /tmp && reached mount
mount -o remount,rw / && reached remount
umount /build && reached umount
umount -l /usr && reached "umount -l"
unshare -Urm sh -c 'umount /usr || mount -o remount,rw,bind /usr || umount /proc/sys' && reached "unshare and umount"
nsenter -t 1 -m test -e "$store" && reached "another mount namespace"
mknod out/disk b 8 0 && head -c 1 out/disk && reached "a device"
cp /usr/bin/id out/id && chmod 4755 out/id && [ "$(out/id -u)" != "$(id -u)" ] && reached setuid
rm -f out/id out/disk
grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && reached capabilities
grep -q '^NoNewPrivs:.*1' /proc/self/status || reached "new privileges"
(ulimit -n 64 && ulimit -n 128) && reached "its limits"
[ ! -e /sys/fs/cgroup ] || reached "control groups"
echo done > out/done
HOSTILE
}
