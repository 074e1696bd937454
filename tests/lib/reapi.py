#!/usr/bin/env python3
"""tests/lib/reapi.py - write the REAPI messages that a shell case needs

usage: reapi.py command FILE [arg=WORD|env=NAME=VALUE|out=PATH|file=PATH|dir=PATH|cwd=PATH|format=N]...
       reapi.py action FILE COMMAND ROOT [timeout=SECONDS|nocache]...
       reapi.py show FILE: the fields of an ActionResult, one a line
Digests are HASH/SIZE. Its parts serve the Python of cases, too (PYTHONPATH=tests/lib).
"""
import sys


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def data(field, value):
    if isinstance(value, str):
        value = value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value) if value else b""


def digest(field, text):
    name, size = text.split("/")
    return data(field, data(1, name) + number(2, int(size)))


def command(words):
    out = b""
    rank = {"arg": 1, "env": 2, "file": 3, "dir": 4, "cwd": 6, "out": 7, "format": 9}
    for word in sorted(words, key=lambda w: rank[w.split("=", 1)[0]]):
        kind, value = word.split("=", 1)
        if kind == "env":
            name, value = value.split("=", 1)
            out += data(2, data(1, name) + data(2, value))
        elif kind == "format":
            out += number(9, int(value))
        else:
            out += data(rank[kind], value)
    return out


def action(words):
    out = digest(1, words[0]) + digest(2, words[1])
    for word in words[2:]:
        if word == "nocache":
            out += number(7, 1)
        else:
            seconds = float(word.split("=")[1])
            nanos = int(seconds % 1 * 1000000000)
            out += data(6, number(1, int(seconds)) + number(2, nanos))
    return out


def fields(raw):
    at = 0

    def take():
        nonlocal at
        shift = value = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(raw):
        tag = take()
        if tag & 7 == 0:
            yield tag >> 3, take()
        else:
            size = take()
            yield tag >> 3, raw[at:at + size]
            at += size


def show(raw):
    names = {2: "file", 3: "dir", 12: "link"}
    for field, value in fields(raw):
        inner = dict(fields(value)) if isinstance(value, bytes) else {}

        def digest_of(n):
            found = dict(fields(inner[n])) if n in inner else {}
            return "%s/%d" % (found[1].decode(), found.get(2, 0)) if found else "-"

        if field == 2:
            print("file", inner.get(1, b"").decode(), digest_of(2), "x" if 4 in inner else "-")
        elif field == 3:
            print("dir", inner.get(1, b"").decode(), digest_of(3), digest_of(5))
        elif field == 12:
            print("link", inner.get(1, b"").decode(), inner[2].decode())
        elif field == 4:
            print("exit", value)
        elif field in (6, 8):
            print("stdout" if field == 6 else "stderr",
                  "%s/%d" % (inner[1].decode(), inner.get(2, 0)))


if __name__ == "__main__":
    if sys.argv[1] == "show":
        show(open(sys.argv[2], "rb").read())
    else:
        made = {"command": command, "action": action}[sys.argv[1]](sys.argv[3:])
        open(sys.argv[2], "wb").write(made)
