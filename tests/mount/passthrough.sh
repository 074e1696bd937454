#!/bin/sh
# Blobs that the kernel reads by itself: no READ reaches the daemon; and where it may not.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# How many requests OP session two has had; asking is a READ too, counted now or later.
upcalls() {
	casbox ctl --mount "$MNT" stats | sed 's/.*"two"//' | grep -o "\"$1\":[0-9]*" |
		sed 's/.*://'
}

config() {
	sed -n "s/^$1 = //p" "$MNT/.casbox/config"
}

mkdir "$T/tree"
head -c 3000000 /dev/urandom > "$T/tree/big"
printf '#!/bin/sh\necho ran\n' > "$T/tree/tool"
cp "$FULL_CASBOX" "$T/tree/binary"
chmod 755 "$T/tree/tool" "$T/tree/binary"
big=$(dashed "$(put "$T/tree/big")")
binary=$(dashed "$(put "$T/tree/binary")")
root=$(put "$T/tree")
tree=cas/directory/$(dashed "$root")

# Every way to read, with or without passthrough.
read_all() {
	cmp "$T/tree/big" "$MNT/cas/file/$big"
	cmp "$T/tree/big" "$MNT/cas/executable/$big"
	trees_equal "$T/tree" "$MNT/$tree"
	eq "a script" ran "$("$MNT/$tree/tool")"
	"$MNT/cas/executable/$binary" --help > /dev/null || fail "exec of a blob"
	"$FSCHECK" mmap-last "$MNT/$tree/big" "$(tail -c 1 "$T/tree/big" | od -An -tu1 | tr -d ' ')"
}

mount_start
if [ -n "${TEST_PLAIN:-}" ]; then
	eq "in a user namespace" "no (needs CAP_SYS_ADMIN outside of user namespaces)" \
		"$(config passthrough)"
	read_all
	mount_stop
	exit 0
fi
[ "$(config passthrough)" = yes ] || skip "no passthrough: $(config passthrough)"
before=$(upcalls READ)
read_all
after=$(upcalls READ)
[ $((after - before)) -le 2 ] || fail "$((after - before)) reads reached the daemon"
ids=$(casbox ctl --mount "$MNT" stats | grep -o '"backing_ids":[0-9]*')
eq "one id a blob" '"backing_ids":3' "$ids"

# The file of an open blob is touched: the next open hashes it, and is not refused.
exec 5< "$MNT/cas/file/$big"
touch "$(blob_path "$(put "$T/tree/big")")"
cmp "$T/tree/big" "$MNT/cas/file/$big"
cmp "$T/tree/big" - <&5
exec 5<&-
cmp "$T/tree/big" "$MNT/cas/file/$big"
read_all
mount_stop

mount_start --without passthrough
eq "told to do without" "no (forced off)" "$(config passthrough)"
read_all
mount_stop

# Blobs on an overlay: one stack too many for the kernel.
if can_overlay; then
	mkdir "$T/ovl" "$T/up" "$T/low"
	mount -t tmpfs tmpfs "$T/up"
	mkdir "$T/up/u" "$T/up/w"
	mount -t overlay -o "lowerdir=$T/low,upperdir=$T/up/u,workdir=$T/up/w" overlay "$T/ovl"
	STORE=$T/ovl/store
	export CASBOX_STORE="$STORE"
	put "$T/tree" > /dev/null
	mount_start
	eq "on overlayfs" "no (the blobs lie on a stacked filesystem, such as overlayfs)" \
		"$(config passthrough)"
	read_all
	mount_stop
fi

again_as_plain
