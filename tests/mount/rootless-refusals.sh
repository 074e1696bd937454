#!/bin/sh
# tests/mount/rootless-refusals.sh - what a plain user is told who cannot mount, and why
. "$(dirname "$0")/../lib/common.sh"
need root fusermount3

bin=$T/bin
home=$T/user
user=$(getent passwd games news daemon | sed 's/:.*//;q')
chmod 755 "$T"
mkdir -p "$bin" "$home/mnt" "$T/fake" "$T/weak"
cp "$CASBOX" "$FULL_CASBOX" "$bin/"
chown -R "$user" "$home"

# user_does [ROOT-COMMANDS] -- COMMAND...: as the user, after root did something to his machine.
user_does() {
	prepare=
	[ "$1" = -- ] || {
		prepare=$1
		shift
	}
	shift
	# shellcheck disable=SC2016
	unshare -m --propagation private sh -c '
		mkdir -p "$1/dev" && mount -t tmpfs -o mode=755 tmpfs "$1/dev" &&
			mknod -m 666 "$1/dev/fuse" c 10 229 && mount --bind "$1/dev/fuse" /dev/fuse || exit 125
		eval "$2"
		user=$3
		shift 3
		exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
		' sh "$T" "$prepare" "$user" env HOME="$home" XDG_RUNTIME_DIR= PATH="${USER_PATH:-$bin:$PATH}" \
		CASBOX_STORE="$home/store" "$@"
}

mount_refused() {
	expect 1 user_does "${2:-:}" -- casbox mount "$home/mnt"
	said "$1"
	eq "mounts left" "" "$(mounts_below "$home")"
}

# It can be done at all.
expect 0 user_does -- sh -c "casbox mount '$home/mnt' && casbox umount '$home/mnt'"

mount_refused "permission denied on /dev/fuse" 'chmod 600 "$1/dev/fuse"'
# shellcheck disable=SC2016
# shellcheck disable=SC2016
mount_refused "there is no /dev/fuse here" 'mkdir -p "$1/nodev"
	mount -t tmpfs -o mode=755 tmpfs "$1/nodev"
	for name in null zero urandom; do cp -a /dev/$name "$1/nodev/"; done
	mount --bind "$1/nodev" /dev'

# Without the program.
for tool in env sh mkdir; do
	ln -s "$(command -v $tool)" "$T/fake/$tool"
done
ln -s "$bin/casbox" "$T/fake/casbox"
USER_PATH=$T/fake
mount_refused "there is no fusermount3 in PATH"

# Where AppArmor, or somebody else, forbids the place, in its words.
printf '#!/bin/sh\necho "fusermount3: mount failed: Permission denied" >&2\nexit 1\n' > "$T/weak/fusermount3"
chmod 4755 "$T/weak/fusermount3"
USER_PATH=$T/weak:$bin:$PATH
mount_refused "fusermount3: mount failed: Permission denied (the directory must be yours; and where AppArmor"

cp "$(command -v fusermount3)" "$T/weak/fusermount3"
chmod 755 "$T/weak/fusermount3"
mount_refused "it is not setuid root here"
USER_PATH=

# A place that is not his.
mkdir "$T/others"
expect 1 user_does -- casbox mount "$T/others"
said "fusermount3" "$T/others"

# For others only where /etc/fuse.conf lets plain users say so.
echo > "$T/fuse.conf"
expect 1 user_does "mount --bind '$T/fuse.conf' /etc/fuse.conf" -- casbox mount --allow-other "$home/mnt"
said "user_allow_other" "/etc/fuse.conf"
echo user_allow_other > "$T/fuse.conf"
# shellcheck disable=SC2016
expect 0 user_does "mount --bind '$T/fuse.conf' /etc/fuse.conf" -- \
	sh -c 'casbox mount --allow-other "$0" && stat "$0/cas" && casbox umount "$0"' "$home/mnt"

# `run` where no user namespaces are to be had: through fusermount3, or it says both. The
# limit is set in a namespace that has all ids, so that it holds nowhere else.
user_without_userns() {
	rm -f "$T/go" "$T/there"
	mkfifo "$T/go" "$T/there"
	# shellcheck disable=SC2016
	unshare -U -m --keep-caps --propagation private sh -c '
		echo > "$1/there"
		read -r go < "$1/go"
		echo 0 > /proc/sys/user/max_user_namespaces && mount --bind "$1/devs/fuse" /dev/fuse || exit 99
		user=$2
		shift 2
		exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
		' sh "$T" "$user" env HOME="$home" XDG_RUNTIME_DIR= PATH="${USER_PATH:-$bin:$PATH}" \
		CASBOX_STORE="$home/store" "$@" &
	read -r there < "$T/there"
	echo 0 0 65536 > "/proc/$!/uid_map"
	echo 0 0 65536 > "/proc/$!/gid_map"
	echo > "$T/go"
	wait $!
}
mkdir "$T/devs" "$home/in"
: > "$T/devs/fuse"
mknod -m 666 "$T/devs/fuse.node" c 10 229
mv "$T/devs/fuse.node" "$T/devs/fuse"
echo yes > "$home/in/file"
# shellcheck disable=SC2016
expect 0 user_without_userns sh -c 'casbox run --input "$HOME/in" -- cat file; casbox ctl config; casbox umount'
grep -qx yes out || fail "what run printed: $(cat out)"
grep -q '"mounting":"fusermount3"' out || fail "mounted otherwise: $(cat out)"
USER_PATH=$T/fake
expect 125 user_without_userns casbox run --input "$home/in" -- true
said "cannot make a user namespace" "there is no fusermount3 in PATH"
