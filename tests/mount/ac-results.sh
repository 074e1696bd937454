#!/bin/sh
# tests/mount/ac-results.sh - ac/: stored results as files, with what is here of their Actions
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3
LIB=$HERE/../lib

mkdir -p tree/src
echo 'input text' > tree/src/in
root=$(put tree)
python3 "$LIB/reapi.py" command cmd arg=sh arg=-c \
	'arg=echo to out; echo to err >&2; mkdir -p d/sub; cp in d/sub/f; cp in tool; chmod +x tool; ln -s d link; mkdir -p deep/er; cp in deep/er/file' \
	env=PATH=/usr/bin:/bin "env=A=it's" cwd=src out=d out=deep/er/file out=link out=tool
cmd=$(put cmd)
python3 "$LIB/reapi.py" action act "$cmd" "$root" timeout=90.5
act=$(put act)
mount_start
eq "nothing yet" "" "$(ls "$MNT/ac")"
"$FSCHECK" call ENOENT stat "$MNT/ac/$(dashed "$act")"
expect 0 casbox run --action "$act" --result res.json

# The result as files.
eq "listed" "${act%/*}" "$(ls "$MNT/ac")"
"$FSCHECK" stat "$MNT/ac" mode=0711
for name in "${act%/*}" "$(dashed "$act")"; do
	at=$MNT/ac/$name
	eq "parts" "action.json command.json input outputs result.json stderr stdout" "$(ls "$at" | paste -sd ' ')"
	"$FSCHECK" dirents "$at"
	eq "stdout" "to out" "$(cat "$at/stdout")"
	eq "stderr" "to err" "$(cat "$at/stderr")"
	trees_equal tree "$at/input"
	eq "outputs" "d deep link tool" "$(ls "$at/outputs" | paste -sd ' ')"
	"$FSCHECK" dirents "$at/outputs"
	"$FSCHECK" inos "$at/outputs"
	eq "in a directory" "input text" "$(cat "$at/outputs/d/sub/f")"
	eq "below made parents" "input text" "$(cat "$at/outputs/deep/er/file")"
	"$FSCHECK" stat "$at/outputs/tool" mode=0555 size=11
	"$FSCHECK" readlink "$at/outputs/link" d
	"$FSCHECK" call EROFS mkdir "$at/outputs/new"
	"$FSCHECK" call ENOENT stat "$at/outputs/new"
	"$FSCHECK" call ENOENT stat "$at/other.json"
done
python3 - "$at" res.json "$act" "$cmd" "$root" <<'PY' || fail "JSON"
import json, os, sys
at, res, act, cmd, root = sys.argv[1:]
def load(name):
    text = open(os.path.join(at, name)).read()
    assert text.endswith("}\n") and os.stat(os.path.join(at, name)).st_size == len(text.encode())
    return json.loads(text)
def digest(d):
    return d["hash"] + "/" + d["sizeBytes"]
a, c, r = load("action.json"), load("command.json"), load("result.json")
assert digest(a["commandDigest"]) == cmd and digest(a["inputRootDigest"]) == root, a
assert a["timeout"] == "90.500s" and "doNotCache" not in a, a
assert c["arguments"][:2] == ["sh", "-c"] and c["workingDirectory"] == "src", c
assert c["environmentVariables"] == [{"name": "PATH", "value": "/usr/bin:/bin"}, {"name": "A", "value": "it's"}], c
assert sorted(c["outputPaths"]) == ["d", "deep/er/file", "link", "tool"], c
mine = json.load(open(res))
assert r == mine, (r, mine)
assert "exitCode" not in r and r["outputFiles"][1].get("isExecutable") is True, r
PY

# A name that is no digest, or not this action's.
for name in x "${act%/*}-1" "$(echo "${act%/*}" | tr a-f A-F)" "${act%?????}" .. "..$act"; do
	case $name in ..) continue ;; esac
	"$FSCHECK" call ENOENT stat "$MNT/ac/$(echo "$name" | tr / -)"
done

# Another result takes its place: whoever looks by name finds that one.
file=$MNT/ac/${act%/*}/outputs/tool
[ -x "$file" ]
exec 3< "$file"
cd "$MNT/ac/${act%/*}/outputs"
PYTHONPATH=$LIB python3 -B - "$T/new.pb" <<'PY'
import hashlib, sys
from reapi import data, varint
def digest(raw):
    return data(1, hashlib.sha256(raw).hexdigest().encode()) + varint(16) + varint(len(raw))
def out(path, raw, contents=b""):
    return data(2, data(1, path) + data(2, digest(raw)) + (data(5, contents) if contents else b""))
new = out(b"only", b"inline bytes", b"inline bytes")
# Paths that lead out, twice, a file below a file, and what a filesystem has no name for.
new += out(b"../up", b"x") + out(b"/abs", b"x") + out(b"only", b"other") + out(b"only/below", b"x")
new += out(b"a/../../b", b"x") + out(b"./dot//twice/", b"absent") + out(b"n" * 300, b"x")
new += data(5, b"raw \xff out") + varint(32) + varint(7)
new += data(12, data(1, b"l") + data(2, b"t")) + data(12, data(1, b"no-target"))
open(sys.argv[1], "wb").write(new)
PY
eq "in the old one" "d deep link tool" "$(ls | paste -sd ' ')"
shard=$(printf %.2s "$act")
cp "$T/new.pb" "$STORE/ac/$shard/.new"
mv "$STORE/ac/$shard/.new" "$STORE/ac/$shard/${act%/*}"
at=$MNT/ac/${act%/*}
eq "the new one" "dot l only" "$(ls "$at/outputs" | paste -sd ' ')"
eq "what came along" "inline bytes" "$(cat "$at/outputs/only")"
"$FSCHECK" stat "$at/outputs/only" size=12 mode=0444
eq "a made parent" twice "$(ls "$at/outputs/dot")"
"$FSCHECK" stat "$at/outputs/dot/twice" size=6
! cat "$at/outputs/dot/twice" 2> /dev/null || fail "an absent blob was read"
eq "raw bytes" "raw \\377 out" "$(cat "$at/stdout" | sed -n l | sed 's/\$$//')"
"$FSCHECK" stat "$at/stderr" size=0
grep -q '"exitCode": 7' "$at/result.json" || fail "result.json is the old one"
grep -q '"stdoutRaw": "cmF3IP8gb3V0"' "$at/result.json" || fail "bytes: $(cat "$at/result.json")"
eq "what was open" "input text" "$(cat <&3)"
exec 3<&-
cd "$T"

# An Action that is not here; one whose Command or input is not.
other=$(printf 'ab%.0s' $(seq 32))
mkdir -p "$STORE/ac/ab"
cp new.pb "$STORE/ac/ab/$other"
eq "without an Action" "outputs result.json stderr stdout" "$(ls "$MNT/ac/$other" | paste -sd ' ')"
eq "whatever the size" "inline bytes" "$(cat "$MNT/ac/$other-123/outputs/only")"
python3 "$LIB/reapi.py" action half "${cmd%/*}/1" "$other/5"
half=$(put half)
mkdir -p "$STORE/ac/$(printf %.2s "$half")"
cp new.pb "$STORE/ac/$(printf %.2s "$half")/${half%/*}"
eq "with an Action alone" "action.json outputs result.json stderr stdout" "$(ls "$MNT/ac/${half%/*}" | paste -sd ' ')"
# What is no result, and what is none of ours.
echo junk > "$STORE/ac/ab/$(printf 'ab%.0s' $(seq 31))cd"
"$FSCHECK" call EIO stat "$MNT/ac/$(printf 'ab%.0s' $(seq 31))cd"
: > "$STORE/ac/ab/$(printf 'ab%.0s' $(seq 31))ce"
"$FSCHECK" call ENOENT stat "$MNT/ac/$(printf 'ab%.0s' $(seq 31))ce"
echo x > "$STORE/ac/ab/README"

# The newest come first, and no more than a thousand.
python3 - "$STORE/ac" new.pb <<'PY'
import os, shutil, sys
for i in range(1100):
    name = "%064x" % (i << 200 | 1)
    os.makedirs("%s/%s" % (sys.argv[1], name[:2]), exist_ok=True)
    path = "%s/%s/%s" % (sys.argv[1], name[:2], name)
    shutil.copy(sys.argv[2], path)
    os.utime(path, (2000000000 + i, 2000000000 + i))
PY
ls -U "$MNT/ac" > names
eq "listed" 1000 "$(wc -l < names)"
eq "first" "$(python3 -c 'print("%064x" % (1099 << 200 | 1))')" "$(head -n 1 names)"
eq "last" "$(python3 -c 'print("%064x" % (100 << 200 | 1))')" "$(tail -n 1 names)"
eq "each once" 1000 "$(sort -u names | wc -l)"
eq "not listed, and there" "inline bytes" "$(cat "$MNT/ac/$other/outputs/only")"
if [ "$(id -u)" -eq 0 ]; then
	! setpriv --reuid=4242 --regid=4242 --clear-groups ls "$MNT/ac" > /dev/null 2>&1 || fail "listed to others"
fi
mount_stop

# Whole directories: by Tree, by root alone, as the working directory itself; a busy listing.
mkdir -p many
for i in $(seq 500); do echo "$i" > "many/$i"; done
many=$(put many)
mount_start
PYTHONPATH=$LIB python3 -B - "$many" "$STORE/ac" <<'PY'
import os, sys
from reapi import data, varint
hash, size = sys.argv[1].split("/")
d = data(1, hash.encode()) + varint(16) + varint(int(size))
def write(name, raw):
    name *= 32
    os.makedirs("%s/%s" % (sys.argv[2], name[:2]), exist_ok=True)
    open("%s/%s/%s" % (sys.argv[2], name[:2], name), "wb").write(raw)
write("c1", data(3, data(1, b"x/y") + data(5, d)))
write("c2", data(3, data(5, d)))
write("c3", b"".join(data(2, data(1, b"o/%05d" % i) + data(2, d)) for i in range(1000)))
write("c4", b"".join(data(2, data(1, b"o/%05d" % i) + data(2, d)) for i in range(60000)))
PY
trees_equal many "$MNT/ac/$(printf 'c1%.0s' $(seq 32))/outputs/x/y"
trees_equal many "$MNT/ac/$(printf 'c2%.0s' $(seq 32))/outputs"
eq "a thousand outputs" 1000 "$(ls -l "$MNT/ac/$(printf 'c3%.0s' $(seq 32))/outputs/o" | grep -c '^-r--r--r--')"
# Six MiB of them: not parsed anew for each request.
(cd "$MNT/ac/$(printf 'c4%.0s' $(seq 32))/outputs/o" && within 10 ls -U) > many-listed
eq "60000 outputs" 60000 "$(wc -l < many-listed)"
mount_stop
