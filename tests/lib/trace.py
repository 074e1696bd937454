#!/usr/bin/env python3
"""tests/lib/trace.py LOG ROOT TREE TRACE [SKIP...] - is a trace what strace saw?

LOG is of `strace -f -y` of a command that ran at ROOT, a sandbox of the input tree whose
copy is TREE, started in ROOT; TRACE the directory that `run --trace-dir` wrote. Compared
are, as sets of paths below ROOT:

  inputs-read      files opened or executed, links read or gone through, directories listed
  inputs-unread    all other files and links
  lookups-failed   of each name that was not found, the first component that is missing

What lies below a SKIP (a directory bound for outputs) or in a directory that the command
made is nobody's input. Prints what differs; status 1 if anything does.
"""
import os
import re
import struct
import sys

LINE = re.compile(r'^(\d+) +(\w+)\((.*)\) += (-?\w+)(?:<(.*?)>)?(?: (E\w+))?')
STRING = r'"((?:[^"\\]|\\.)*)"'
AT = re.compile(r'^(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, ' + STRING)
PLAIN = re.compile(r'^' + STRING)
FD = re.compile(r'^\d+<((?:[^>\\]|\\.)*)>')
LOOKS = re.compile(r'^(l?stat(64)?|newfstatat|statx|access|faccessat2?|statfs|l?getxattr|'
                   r'l?listxattr|inotify_add_watch)$')
ESCAPE = {'n': '\n', 't': '\t', 'r': '\r', 'v': '\v', 'f': '\f'}


def unescape(text):
    def one(m):
        c = m.group(1)
        return chr(int(c, 8)) if c[0].isdigit() else ESCAPE.get(c, c)
    return re.sub(r'\\([0-7]{1,3}|.)', one, text)


def loader_of(head):
    """PT_INTERP of a 64-bit program of this machine's byte order, if it has one."""
    start, = struct.unpack_from('=Q', head, 32)
    size, count = struct.unpack_from('=HH', head, 54)
    for i in range(count):
        kind, = struct.unpack_from('=I', head, start + i * size)
        if kind == 3:
            at, = struct.unpack_from('=Q', head, start + i * size + 8)
            return head[at:head.index(b'\0', at)].decode()
    return None


class Tree:
    """The input tree, with what the command did to it."""

    def __init__(self, root, copy):
        self.root = os.path.realpath(root)
        self.kind = {'': 'd'}
        self.target = {}
        for at, dirs, files in os.walk(copy):
            for name in dirs + files:
                full = os.path.join(at, name)
                path = os.path.relpath(full, copy)
                if os.path.islink(full):
                    self.kind[path] = 'l'
                    self.target[path] = os.readlink(full)
                else:
                    self.kind[path] = 'd' if os.path.isdir(full) else 'f'
        self.made = {}      # path: kind, now
        self.ever = set()   # made at some time
        self.gone = set()   # inputs removed or replaced

    def is_input(self, path):
        return path in self.kind and path not in self.gone

    def walk(self, path, last=True, depth=0):
        """(links gone through, the path, missing): relative to the root; path is None when
        it leads out, missing is None or what is not there."""
        if not path.startswith('/'):
            raise ValueError(path)
        links = []
        parts = [p for p in path.split('/') if p not in ('', '.')]
        root = [p for p in self.root.split('/') if p]
        at = []
        while parts:
            part = parts.pop(0)
            if part == '..':
                at = at[:-1]
                continue
            at.append(part)
            if at[:len(root)] != root:
                full = '/' + '/'.join(at)
                if len(at) < len(root) and at == root[:len(at)]:
                    continue
                if os.path.islink(full) and (parts or last) and depth < 40:
                    more = os.path.join(os.path.dirname(full), os.readlink(full))
                    rest = os.path.join(more, *parts)
                    more_links, end, missing = self.walk(rest, last, depth + 1)
                    return links + more_links, end, missing
                continue
            rel = '/'.join(at[len(root):])
            if self.kind_now(rel) is None:
                return links, rel, rel
            if self.kind_now(rel) == 'l' and (parts or last):
                links.append(rel)
                if depth > 40:
                    return links, None, None
                target = self.made.get(rel, ('l', None))[1] or self.target.get(rel)
                if target is None:
                    return links, None, None
                base = '/' + '/'.join(at[:-1])
                rest = os.path.join(os.path.join(base, target), *parts)
                more_links, end, missing = self.walk(rest, last, depth + 1)
                return links + more_links, end, missing
        if at[:len(root)] != root:
            return links, None, None
        return links, '/'.join(at[len(root):]), None

    def kind_now(self, rel):
        if rel in self.made:
            return self.made[rel][0]
        return self.kind.get(rel) if rel not in self.gone else None

    def make(self, rel, kind, target=None):
        if rel in self.kind:
            self.gone.add(rel)
        self.made[rel] = (kind, target)
        self.ever.add(rel)

    def remove(self, rel):
        for path in [p for p in self.made if p == rel or p.startswith(rel + '/')]:
            del self.made[path]
        if rel in self.kind:
            for path in self.kind:
                if path == rel or path.startswith(rel + '/'):
                    self.gone.add(path)

    def is_own(self, rel):
        """In a directory that the command made?"""
        while rel:
            rel = os.path.dirname(rel)
            if rel in self.ever and self.kind.get(rel) != 'd':
                return True
        return False


class Strace:
    def __init__(self, tree, skips):
        self.tree = tree
        self.skips = skips
        self.read, self.listed, self.failed, self.maybe = set(), set(), set(), set()
        self.cwd = {}
        self.pending = {}

    def skipped(self, rel):
        return any(rel == s or rel.startswith(s + '/') for s in self.skips) or \
            self.tree.is_own(rel)

    def look(self, pid, base, path, last=True):
        """What is at @path; its links count as read, and a missing name as failed."""
        full = path if path.startswith('/') else os.path.join(base or self.cwd[pid], path)
        links, rel, missing = self.tree.walk(full, last)
        for link in links:
            if self.tree.is_input(link):
                self.read.add(link)
        return rel, missing

    def note_missing(self, missing):
        if missing is None or missing in self.tree.kind or self.skipped(missing):
            return
        if self.tree.kind_now(os.path.dirname(missing)) == 'd':
            self.failed.add(missing)

    def paths(self, pid, args):
        """The (base, path) pairs of a call, in order."""
        out = []
        while args:
            m = AT.match(args)
            if m:
                out.append((unescape(m.group(1)), unescape(m.group(2))))
            else:
                m = PLAIN.match(args)
                if m:
                    out.append((None, unescape(m.group(1))))
            if m:
                args = args[m.end():]
            comma = args.find(', ')
            if comma < 0:
                break
            args = args[comma + 2:]
            if len(out) == 2:
                break
        return out

    def call(self, pid, name, args, ret, out, error):
        if name in ('clone', 'clone3', 'fork', 'vfork'):
            if ret.isdigit() and int(ret) > 0:
                self.cwd[int(ret)] = self.cwd[pid]
            return
        if name == 'fchdir' and ret == '0':
            self.cwd[pid] = unescape(FD.match(args).group(1))
            return
        if name in ('getdents64', 'getdents') and not error:
            path = unescape(FD.match(args).group(1))
            _, rel, missing = self.tree.walk(path)
            if rel is not None and missing is None and self.tree.kind.get(rel) == 'd' and \
                    not self.skipped(rel):
                self.listed.add(rel)
            return
        pairs = self.paths(pid, args)
        if not pairs or ret == '?':
            return
        handler = getattr(self, 'on_' + name, None)
        if handler is None:
            if not LOOKS.match(name):
                return
            follow = not re.search(r'NOFOLLOW|^lstat', name + args)
            for base, path in pairs[:1]:
                if path:
                    _, missing = self.look(pid, base, path, follow)
                    if error == 'ENOENT':
                        self.note_missing(missing)
            return
        handler(pid, pairs, args, ret, out, error)

    def on_open(self, pid, pairs, args, ret, out, error):
        base, path = pairs[0]
        if not path:
            return
        rel, missing = self.look(pid, base, path, 'O_NOFOLLOW' not in args)
        if error:
            if error == 'ENOENT':
                self.note_missing(missing)
            return
        if rel is None or self.skipped(rel) or 'O_PATH' in args:
            return
        if missing is not None:
            if 'O_CREAT' in args:
                self.tree.make(rel, 'f')
            return
        if self.tree.kind_now(rel) != 'f' or not self.tree.is_input(rel):
            return
        if 'O_WRONLY' in args and 'O_TRUNC' in args:
            self.tree.make(rel, 'f')
            self.maybe.add(rel)
        elif 'O_WRONLY' in args:
            self.maybe.add(rel)
        else:
            self.read.add(rel)

    on_openat = on_openat2 = on_creat = on_open

    def on_execve(self, pid, pairs, args, ret, out, error, depth=0):
        base, path = pairs[0]
        rel, missing = self.look(pid, base, path)
        if error:
            if error == 'ENOENT':
                self.note_missing(missing)
            return
        self.executed(pid, path, rel, depth)

    on_execveat = on_execve

    def executed(self, pid, path, rel, depth):
        full = os.path.join(self.tree.root, rel) if rel is not None else path
        if rel is not None and self.tree.is_input(rel) and not self.skipped(rel):
            self.read.add(rel)
        # A script's interpreter is opened by the kernel; so is a program's loader.
        copy = os.path.join(sys.argv[3], rel) if rel is not None else full
        try:
            with open(copy, 'rb') as f:
                head = f.read(4096)
        except OSError:
            return
        inner = None
        if head[:2] == b'#!':
            inner = head[2:].split(b'\n')[0].split()[0].decode()
        elif head[:4] == b'\x7fELF':
            inner = loader_of(head)
        if inner and depth < 5:
            more, _ = self.look(pid, None, inner)
            self.executed(pid, inner, more, depth + 1)

    def on_readlink(self, pid, pairs, args, ret, out, error):
        base, path = pairs[0]
        if not path:
            return
        rel, missing = self.look(pid, base, path, False)
        if error == 'ENOENT':
            self.note_missing(missing)
        elif not error and rel is not None and self.tree.is_input(rel):
            self.read.add(rel)

    on_readlinkat = on_readlink

    def on_chdir(self, pid, pairs, args, ret, out, error):
        base, path = pairs[0]
        rel, missing = self.look(pid, base, path)
        if error:
            self.note_missing(missing if error == 'ENOENT' else None)
            return
        if rel is not None:
            self.cwd[pid] = os.path.join(self.tree.root, rel)
        else:
            self.cwd[pid] = os.path.realpath(os.path.join(self.cwd[pid], path))

    def on_mkdir(self, pid, pairs, args, ret, out, error, kind='d'):
        base, path = pairs[0]
        rel, missing = self.look(pid, base, path, False)
        if error == 'ENOENT':
            self.note_missing(missing)
        elif rel is not None and not error:
            self.tree.make(rel, kind)
        elif missing == rel and rel is not None and not self.skipped(rel):
            self.failed.add(rel)  # looked up, and could not be made

    on_mkdirat = on_mknod = on_mknodat = on_mkdir

    def on_symlink(self, pid, pairs, args, ret, out, error):
        strings = [unescape(s) for s in re.findall(STRING, args)]
        base = re.search(r'<((?:[^>\\]|\\.)*)>', args)
        rel, missing = self.look(pid, unescape(base.group(1)) if base else None, strings[1],
                                 False)
        if rel is not None and not error:
            self.tree.make(rel, 'l', strings[0])

    on_symlinkat = on_symlink

    def on_unlink(self, pid, pairs, args, ret, out, error):
        base, path = pairs[0]
        rel, missing = self.look(pid, base, path, False)
        if error == 'ENOENT':
            self.note_missing(missing)
        elif rel is not None and not error:
            self.tree.remove(rel)

    on_unlinkat = on_rmdir = on_unlink

    def on_rename(self, pid, pairs, args, ret, out, error):
        (base, path), (to_base, to_path) = pairs[0], pairs[1]
        rel, missing = self.look(pid, base, path, False)
        to, to_missing = self.look(pid, to_base, to_path, False)
        if error == 'ENOENT':
            self.note_missing(missing)
            self.note_missing(to_missing)
        if error:
            return
        kind = (self.tree.kind_now(rel) if rel is not None else 'f') or 'f'
        target = self.tree.made.get(rel, (None, None))[1]
        if rel is not None:
            if self.tree.is_input(rel):
                self.maybe.add(rel)
            self.tree.remove(rel)
        if to is not None:
            self.tree.make(to, kind, target)

    on_renameat = on_renameat2 = on_rename

    def on_link(self, pid, pairs, args, ret, out, error):
        (base, path), (to_base, to_path) = pairs[0], pairs[1]
        rel, missing = self.look(pid, base, path, False)
        to, _ = self.look(pid, to_base, to_path, False)
        if error == 'ENOENT':
            self.note_missing(missing)
        if not error:
            if rel is not None and self.tree.is_input(rel):
                self.maybe.add(rel)
            if to is not None:
                self.tree.make(to, 'f')

    on_linkat = on_link

    def changes(self, pid, pairs, args, ret, out, error):
        base, path = pairs[0]
        rel, missing = self.look(pid, base, path)
        if error == 'ENOENT':
            self.note_missing(missing)
        elif rel is not None and self.tree.is_input(rel):
            self.maybe.add(rel)  # copied up, if it could be

    on_chmod = on_fchmodat = on_utimensat = on_utime = on_chown = on_fchownat = changes
    on_truncate = on_setxattr = changes

    def run(self, log, start):
        first = True
        for line in log:
            line = line.rstrip('\n')
            m = re.match(r'^(\d+) +<\.\.\. (\w+) resumed>(.*)$', line)
            if m:
                line = self.pending.pop(m.group(1), m.group(1) + ' ' + m.group(2) + '(') + \
                    m.group(3)
            elif line.endswith('<unfinished ...>'):
                self.pending[line.split(' ')[0]] = line[:-len('<unfinished ...>')]
                # Its child may be heard of before it is.
                continue
            m = LINE.match(line)
            if not m:
                continue
            pid = int(m.group(1))
            if first:
                self.cwd[pid] = start
                first = False
            if pid not in self.cwd:
                # Heard of before the fork that made it: of the parent that waits for it.
                self.cwd[pid] = self.parent_cwd()
            self.call(pid, m.group(2), m.group(3), m.group(4), m.group(5), m.group(6))

    def parent_cwd(self):
        for pid, text in reversed(list(self.pending.items())):
            if re.search(r'(clone3?|v?fork)\(', text) and int(pid) in self.cwd:
                return self.cwd[int(pid)]
        raise SystemExit('a process without a parent')


def paths_of(trace, name):
    with open(os.path.join(trace, name), encoding='utf-8') as f:
        return [line.rstrip('\n') for line in f if not line.startswith('# ')]


def differ(what, want, got, may):
    missing = sorted(want - got)
    extra = sorted(got - want - may)
    for path in missing:
        print(f'{what}: strace saw {path}, the trace did not')
    for path in extra:
        print(f'{what}: the trace has {path}, strace does not')
    return bool(missing or extra)


def main():
    log, root, copy, trace = sys.argv[1:5]
    tree = Tree(root, copy)
    seen = Strace(tree, [s.rstrip('/') for s in sys.argv[5:]])
    with open(log, encoding='utf-8', errors='surrogateescape') as f:
        seen.run(f, tree.root)
    lists = {n: paths_of(trace, n) for n in ('inputs-read', 'inputs-unread', 'lookups-failed')}
    bad = False
    for name, lines in lists.items():
        if lines != sorted(lines):
            print(f'{name} is not sorted')
            bad = True
    read = {p for p in lists['inputs-read'] if not p.endswith('/')}
    listed = {p.rstrip('/') for p in lists['inputs-read'] if p.endswith('/')}
    listed = {'' if p == '.' else p for p in listed}
    want = {p for p in seen.read if not seen.skipped(p)}
    bad |= differ('read', want, read, seen.maybe)
    bad |= differ('listed', {p or '' for p in seen.listed}, listed, set())
    leaves = {p for p, k in tree.kind.items() if k != 'd'}
    bad |= differ('unread', leaves - read, set(lists['inputs-unread']), set())
    bad |= differ('failed', seen.failed, set(lists['lookups-failed']), tree.ever)
    print(f'{len(want)} read, {len(leaves - read)} unread, {len(seen.listed)} listed, '
          f'{len(seen.failed)} failed lookups')
    sys.exit(1 if bad else 0)


main()
