#!/bin/sh
# tests/mount/put-digest.sh - the root digest is the one that an independent program computes
. "$(dirname "$0")/../lib/common.sh"
need python3

sample_tree "$T/tree"
chmod 711 "$T/tree/many/file-9"
ln -s "$(printf 'gr\303\274n')" "$T/tree/to-umlaut"
mkdir -p "$T/tree/$(printf 'd\303\251p\303\264t')/x"
for name in A B Z aa a.b a-b a0 a/..x '~' ' '; do
	mkdir -p "$T/tree/order/$(dirname "$name")"
	[ -d "$T/tree/order/$name" ] || echo "$name" > "$T/tree/order/$name"
done

# The messages of REAPI v2 in canonical form, written down a second time.
cat > "$T/reference.py" << 'END'
import hashlib, os, sys

def varint(n):
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out + bytearray([n]))

def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value if value else b""

def message(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value

def digest(data):
    size = varint(2 << 3) + varint(len(data)) if data else b""
    return text(1, hashlib.sha256(data).hexdigest().encode()) + size

def directory(path):
    nodes = {1: [], 2: [], 3: []}
    for name in os.listdir(path):
        at = os.path.join(path, name)
        if os.path.islink(at):
            nodes[3].append((name, text(1, name) + text(2, os.readlink(at))))
        elif os.path.isdir(at):
            nodes[2].append((name, text(1, name) + message(2, digest(directory(at)))))
        else:
            with open(at, "rb") as f:
                node = text(1, name) + message(2, digest(f.read()))
            if os.stat(at).st_mode & 0o100:
                node += varint(4 << 3) + b"\1"
            nodes[1].append((name, node))
    return b"".join(message(f, node) for f in nodes for _, node in sorted(nodes[f]))

root = directory(os.fsencode(sys.argv[1]))
print("%s/%d" % (hashlib.sha256(root).hexdigest(), len(root)))
END
eq "root digest" "$(python3 "$T/reference.py" "$T/tree")" "$(put "$T/tree")"
mkdir "$T/nothing"
eq "empty directory" "$(python3 "$T/reference.py" "$T/nothing")" "$(put "$T/nothing")"
