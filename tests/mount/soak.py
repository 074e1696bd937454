"""tests/mount/soak.py - lanes of sandboxes with random trees, each byte verified

usage: soak.py CASBOX STORE MNT SECONDS LANES SEED

Every file says which place and version it is. A lane makes a sandbox, looks at it in
random order, writes, finishes or not, removes; at times it leaves something open behind.
Walkers stroll through all sandboxes from outside, where names come and go.
"""
import errno, json, multiprocessing, os, random, shutil, subprocess, sys, time

CASBOX, STORE, MNT = sys.argv[1:4]
SECONDS, LANES, SEED = int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
NR_TREES = 24
GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR, errno.EISDIR, errno.EBUSY)


class Control:
    def __init__(self):
        self.fd = os.open(MNT + "/.casbox/control", os.O_RDWR)

    def __call__(self, line):
        os.write(self.fd, (line + "\n").encode())
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(self.fd, 1 << 20)
        answer = json.loads(text)
        assert answer["ok"], (line, answer)
        return answer


def leaf(rnd, path):
    if rnd.random() < 0.15:
        return ("l", "%s.%d" % (os.path.basename(path), rnd.randrange(3)))
    return ("x" if rnd.random() < 0.2 else "f", "%s %d\n" % (path, rnd.randrange(4)) * rnd.randrange(1, 40))


def grow(rnd, tree, path, depth):
    for i in range(rnd.randrange(2, 7)):
        name = "%s/n%d" % (path, i) if path else "n%d" % i
        if depth < 4 and rnd.random() < 0.45:
            tree[name] = ("d", "")
            grow(rnd, tree, name, depth + 1)
        else:
            tree[name] = leaf(rnd, name)


def cut(tree, path):
    for name in [n for n in tree if n == path or n.startswith(path + "/")]:
        del tree[name]


def mutate(rnd, tree):
    tree = dict(tree)
    for _ in range(rnd.randrange(1, 8)):
        path = rnd.choice([n for n in tree if n != "out"] or ["new"])
        cut(tree, path)
        what = rnd.random()
        if what < 0.5:
            tree[path] = leaf(rnd, path)
        elif what < 0.8:
            tree[path] = ("d", "")
            grow(rnd, tree, path, path.count("/") + 2)
    while len(tree) < 20:
        tree["top%d" % len(tree)] = ("d", "")
        grow(rnd, tree, "top%d" % (len(tree) - 1), 1)
    return tree


def write_tree(tree, top):
    os.mkdir(top)
    for path in sorted(tree):
        kind, text = tree[path]
        if kind == "d":
            os.mkdir(top + "/" + path)
        elif kind == "l":
            os.symlink(text, top + "/" + path)
        else:
            with open(top + "/" + path, "w") as f:
                f.write(text)
            os.chmod(top + "/" + path, 0o755 if kind == "x" else 0o644)


def check(tree, box, path, listed):
    kind, text = tree[path]
    at = box + "/" + path
    st = os.lstat(at)
    if kind == "d":
        assert os.path.isdir(at) and not os.path.islink(at), at
        names = sorted(n for n in listed[path])
        assert path == "out" or sorted(os.listdir(at)) == names, (at, sorted(os.listdir(at)), names)
    elif kind == "l":
        assert os.readlink(at) == text, (at, os.readlink(at), text)
    else:
        with open(at) as f:
            got = f.read()
        assert got == text, (at, got[:40], text[:40])
        assert bool(st.st_mode & 0o100) == (kind == "x"), (at, oct(st.st_mode))


def look(rnd, tree, every_name, box):
    listed = {p: [] for p in tree if tree[p][0] == "d"}
    for path in tree:
        if "/" in path:
            listed[path.rsplit("/", 1)[0]].append(path.rsplit("/", 1)[1])
    paths = list(tree) + rnd.sample(every_name, len(every_name) // 3)
    rnd.shuffle(paths)
    for path in paths[:rnd.choice([5, 50, len(paths)])]:
        if path in tree:
            check(tree, box, path, listed)
        else:
            assert not os.path.lexists(box + "/" + path), box + "/" + path


def lane(nr, trees, digests, every_name, until):
    rnd = random.Random(SEED * 1000 + nr)
    ctl = Control()
    held = []
    step = 0
    while time.time() < until:
        step += 1
        which = rnd.randrange(len(trees))
        name = "lane%d" % nr if rnd.random() < 0.3 else "l%d-%d" % (nr, step)
        policy = rnd.choice(["", "", " --writable all"])
        box = ctl("create --root %s --id %s --output out/%s" % (digests[which], name, policy))["path"]
        assert os.listdir(box + "/out") == [], os.listdir(box + "/out")
        look(rnd, trees[which], every_name, box)
        with open(box + "/out/token", "w") as f:
            f.write(name)
        if policy:
            for path in rnd.sample(sorted(trees[which]), 3):
                if path != "out" and os.path.lexists(box + "/" + path):
                    os.rename(box + "/" + path, box + "/moved")
                    subprocess.call(["rm", "-rf", box + "/moved"])
        else:
            look(rnd, trees[which], every_name, box)
        if rnd.random() < 0.1:
            held.append((box, os.open(box, os.O_RDONLY), os.listdir(box)))
        if rnd.random() < 0.5:
            ctl("finish " + name)
            if rnd.random() < 0.3:
                assert open(box + "/out/token").read() == name
        ctl("remove " + name)
        assert not os.path.lexists(box), box
        while len(held) > 3 or (held and rnd.random() < 0.3):
            os.close(held.pop(0)[1])


def walker(nr, legal, until):
    rnd = random.Random(SEED * 77 + nr)
    while time.time() < until:
        try:
            at, rel = MNT + "/sandboxes/" + rnd.choice(os.listdir(MNT + "/sandboxes") or ["none"]), ""
            while os.path.isdir(at) and not os.path.islink(at) and rnd.random() < 0.9:
                name = rnd.choice(os.listdir(at) or ["none"])
                at, rel = at + "/" + name, rel + "/" + name
            if rel[1:] in legal and os.path.isfile(at) and not os.path.islink(at):
                text = open(at).read()
                assert text in legal[rel[1:]], (at, text[:50])
        except OSError as e:
            if e.errno not in GONE:
                raise
        time.sleep(rnd.random() / 50)


def dropper(until):
    while time.time() < until:
        time.sleep(2)
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("2")


def main():
    rnd = random.Random(SEED)
    tree = {"out": ("d", "")}
    grow(rnd, tree, "", 0)
    trees = [tree]
    while len(trees) < NR_TREES:
        trees.append(mutate(rnd, rnd.choice(trees)))
    digests = []
    for i, tree in enumerate(trees):
        write_tree(tree, "soak-%d" % i)
        digests.append(subprocess.check_output([CASBOX, "put", "soak-%d" % i], text=True).strip())
        shutil.rmtree("soak-%d" % i)
    every_name = sorted(set(n for t in trees for n in t))
    legal = {n: {t[n][1] for t in trees if n in t} for n in every_name}
    until = time.time() + SECONDS
    run = [multiprocessing.Process(target=lane, args=(i, trees, digests, every_name, until)) for i in range(LANES)]
    run += [multiprocessing.Process(target=walker, args=(i, legal, until)) for i in range(2)]
    run += [multiprocessing.Process(target=dropper, args=(until,))] if os.environ.get("SOAK_DROP") else []
    for process in run:
        process.start()
    for process in run:
        process.join()
    print(json.dumps(Control()("config")["slots"]))
    sys.exit(any(process.exitcode != 0 for process in run))


main()
