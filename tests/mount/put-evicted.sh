#!/bin/sh
# tests/mount/put-evicted.sh - a put that lost blobs to gc each time fails, and says which
. "$(dirname "$0")/../lib/common.sh"
need python3

sample_tree "$T/tree"
put "$T/tree" > /dev/null

# An eviction that never ends: it holds its lock on the lease byte, and counts on.
cat > evict.py << 'PY'
import fcntl, os, struct, sys, time
store, ready = sys.argv[1], sys.argv[2]
lock = os.open(store + "/lock", os.O_RDWR)
fcntl.lockf(lock, fcntl.LOCK_EX, 1, 258)
epoch = os.open(store + "/run/evicted", os.O_RDWR | os.O_CREAT, 0o600)
open(ready, "w").close()
n = 0
while os.path.exists(ready):
    n += 1
    os.pwrite(epoch, struct.pack("=Q", n), 0)
    time.sleep(0.0005)
PY
python3 evict.py "$STORE" "$T/going" &
evict=$!
await test -e going
expect 1 "$CASBOX" put "$T/tree" "$T/missing"
eq "acknowledged" "" "$(cat out)"
said "'$T/tree': blobs were evicted" "'$T/missing'"

# It ends: the next put is told whole.
rm going
wait "$evict"
put "$T/tree" > /dev/null
