#!/bin/sh
# tests/mount/view-names.sh - names in the cache: what is none is ENOENT, and a million leave nothing
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount python3
[ -w /proc/sys/vm/drop_caches ] || skip "caches cannot be dropped"

nodes_two() { casbox ctl --mount "$MNT" stats | grep -o '"nodes":[0-9]*' | sed -n '2s/.*://p'; }
rss() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON/status"; }

mkdir tree
echo x > tree/x
root=$(put tree)
blob=$(put tree/x)
mount_start

# No digest, or one of nothing: always ENOENT, wherever it is asked for.
hash=${blob%/*}
for place in cas/file cas/executable cas/directory cas/tree cas/command ac; do
	for name in x "$hash-" "$hash--2" "$hash-2x" "$hash-02" "$hash-+2" "$hash-2-2" " $hash-2" \
		"${hash%?}" "${hash}0" "$(echo "$hash" | tr a-f A-F)-2" "$hash-9223372036854775808" \
		"$hash-99999999999999999999999" "$hash-0" "$(printf '\377\376')" "$(printf 'n%.0s' $(seq 255))" \
		'%s%n' "$(printf 'a\nb')" "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-1"; do
		"$FSCHECK" call ENOENT stat "$MNT/$place/$name" || fail "$place/$name"
	done
	"$FSCHECK" call ENAMETOOLONG stat "$MNT/$place/$(printf 'n%.0s' $(seq 256))"
done

# Each name of a blob and of a tree, and many of none.
cat > look.py <<'PY'
import os, random, sys
mnt, rounds, root, blob = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
random.seed(rounds)
places = ["cas/file", "cas/executable", "cas/directory", "cas/tree", "cas/command", "ac"]
def stat(path):
    try:
        os.stat(path)
        return True
    except FileNotFoundError:
        return False
for n in range(rounds):
    name = "%064x-%d" % (random.getrandbits(256), random.randrange(1, 1 << 40))
    place = places[n % len(places)]
    assert not stat("%s/%s/%s" % (mnt, place, name)), name
    if n % 100 == 0:
        assert stat(mnt + "/cas/directory/" + root + "/x")
        assert stat(mnt + "/cas/file/" + blob)
PY
echo 2 > /proc/sys/vm/drop_caches
python3 look.py "$MNT" 20000 "$(dashed "$root")" "$(dashed "$blob")"
base=$(nodes_two)
before=$(rss)
python3 look.py "$MNT" "$(full_or 60000 1000000)" "$(dashed "$root")" "$(dashed "$blob")"
after=$(rss)
[ "$(nodes_two)" -le $((base + 10)) ] || fail "nodes: $base, then $(nodes_two)"
[ $((after - before)) -lt 4096 ] || fail "the daemon grew from $before to $after kB by names of nothing"

# Nodes of what is there, below many names, go with the kernel's. The memory of the kernel is
# what bounds them: here it is told to forget.
python3 - "$STORE/ac" <<'PY'
import os, sys
for i in range(3000):
    name = "%064x" % (i << 200 | 7)
    os.makedirs("%s/%s" % (sys.argv[1], name[:2]), exist_ok=True)
    open("%s/%s/%s" % (sys.argv[1], name[:2], name), "wb").write(b"\x20\x05")
PY
round() {
	python3 - "$MNT/ac" "$1" <<'PY'
import os, sys
for i in range(3000):
    at = "%s/%064x" % (sys.argv[1], i << 200 | 7)
    if int(sys.argv[2]) % 2:
        at += "-%d" % (1000 * int(sys.argv[2]) + i)
    assert len(os.listdir(at)) == 4
    assert os.listdir(at + "/outputs") == []
PY
}
round 0
[ "$(nodes_two)" -gt 6000 ] || fail "no nodes to be forgotten: $(nodes_two)"
for i in 1 2 3; do
	round "$i"
	echo 2 > /proc/sys/vm/drop_caches
	[ "$i" -ne 1 ] || first=$(rss)
done
settled() { [ "$(nodes_two)" -le $((base + 30)) ]; }
for _ in 1 2 3 4 5; do
	settled && break
	sleep 0.2
	echo 2 > /proc/sys/vm/drop_caches
done
[ "$(nodes_two)" -le $((base + 30)) ] || fail "nodes: $base, then $(nodes_two)"
[ $(($(rss) - first)) -lt 4096 ] || fail "the daemon grew from $first to $(rss) kB"
mount_stop
