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
from reapi import data, digest, number

def sum_of(blob):
    return "%s/%d" % (hashlib.sha256(blob).hexdigest(), len(blob))

def directory(path):
    nodes = {1: [], 2: [], 3: []}
    for name in os.listdir(path):
        at = os.path.join(path, name)
        if os.path.islink(at):
            nodes[3].append((name, data(1, name) + data(2, os.readlink(at))))
        elif os.path.isdir(at):
            nodes[2].append((name, data(1, name) + digest(2, sum_of(directory(at)))))
        else:
            with open(at, "rb") as f:
                node = data(1, name) + digest(2, sum_of(f.read()))
            node += number(4, os.stat(at).st_mode >> 6 & 1)
            nodes[1].append((name, node))
    return b"".join(data(f, node) for f in nodes for _, node in sorted(nodes[f]))

print(sum_of(directory(os.fsencode(sys.argv[1]))))
END
export PYTHONPATH="$HERE/../lib"
eq "root digest" "$(python3 -B "$T/reference.py" "$T/tree")" "$(put "$T/tree")"
mkdir "$T/nothing"
eq "empty directory" "$(python3 -B "$T/reference.py" "$T/nothing")" "$(put "$T/nothing")"
