"""tests/crash/storm.py - everything at once on one store, with kill -9, each byte verified

usage: storm.py CASBOX DIR SECONDS SEED [spool]

Works in the empty directory DIR: a store with a tiny quota, a daemon that is killed every few
seconds, and threads that put, read, check out, pin, evict, check, and use sandboxes, their
commands being killed now and then. What must hold:

- no wrong byte, from any command or through the mount;
- what was acknowledged is there until something was evicted, and as long as it is pinned
  or a sandbox needs it;
- now and then everybody stops: fsck is clean, and stat counts what a walk finds;
- in the end no temporary is left, and nothing that is not needed.

With "spool" the blobs are in a directory of their own, so puts go through the spool.
"""
import errno, hashlib, json, os, random, shutil, signal, subprocess, sys, threading, time

CASBOX, DIR, SECONDS, SEED = sys.argv[1], os.path.abspath(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
SPOOL = "spool" in sys.argv[5:]
STORE, MNT, WORK = DIR + "/store", DIR + "/mnt", DIR + "/work"
BLOBS = DIR + "/blobs" if SPOOL else STORE
QUOTA = 3 << 20
ROUND = 45  # seconds between two looks at everything
HANG = int(os.environ.get("STORM_HANG", 240))
DOWN = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EIO, errno.ESTALE, errno.ENODEV, errno.EBUSY)
GONE = ("in no tier", "is not in the store", "no blob", "is not there", "not pinned")

ENV = dict(os.environ, CASBOX_STORE=STORE, CASBOX_DURABILITY="none", CASBOX_MAX_SIZE=str(QUOTA))
if SPOOL:
    ENV["CASBOX_BLOBS"] = BLOBS


class Wrong(Exception):
    pass


class State:
    """What all threads share."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {}
        self.error = None
        self.stop = threading.Event()
        self.pause = threading.Event()  # everybody waits
        self.waiting = 0
        self.generation = 1  # odd: the daemon is down, or may be
        self.known = {}  # digest -> content of a blob, or the files of a tree

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def fail(self, text):
        with self.lock:
            if self.error is None:
                self.error = "%s [generation %d]" % (text, self.generation)
                for line in open("/proc/self/mountinfo"):
                    if DIR in line:
                        print(line.strip())
                os.system("cat %s/run/daemon; tail -5 %s/daemon.log" % (STORE, DIR))
        self.stop.set()

    def learn(self, digest, content):
        with self.lock:
            if len(self.known) > 400:
                self.known.pop(random.choice(list(self.known)))
            self.known[digest] = content

    def any(self, rnd, kind):
        with self.lock:
            fits = [d for d, c in self.known.items() if isinstance(c, kind)]
        return rnd.choice(fits) if fits else None


S = State()


def epoch():
    try:
        with open(STORE + "/run/evicted", "rb") as f:
            return f.read(8)
    except FileNotFoundError:
        return b""


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __str__(self):
        return "status %s: %s" % (self.status, self.err.decode(errors="replace").strip()[:600])


def run(*words, kill_after=None, **kw):
    """A command, killed after so many seconds if it still runs."""
    p = subprocess.Popen([CASBOX, *words], env=ENV, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    if kill_after is not None:
        try:
            p.wait(kill_after)
        except subprocess.TimeoutExpired:
            p.kill()
            S.count("killed " + words[0])
    try:
        out, err = p.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        if os.environ.get("STORM_STACKS"):
            os.system("gdb -p %d -batch -ex 'thread apply all bt' 2> /dev/null" % p.pid)
        p.kill()
        raise Wrong("%s hangs: %s" % (words[0], p.communicate()[1]))
    if kill_after is None or p.returncode != -signal.SIGKILL:
        S.count(words[0])
    return Result(p.returncode, out, err)


def must(*words, **kw):
    r = run(*words, **kw)
    if r.status != 0:
        raise Wrong("%s: %s" % (" ".join(words)[:200], r))
    return r


def absent(r):
    return r.status == 1 and any(g in r.err.decode(errors="replace") for g in GONE)


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def some_content(rnd):
    """One of a pool that all share, or new."""
    seed = rnd.randrange(150) if rnd.random() < 0.5 else rnd.getrandbits(60)
    r = random.Random(seed)
    size = r.choice((r.randrange(1, 300), r.randrange(300, 20000), r.randrange(20000, 300000)))
    return noise(seed, size)


def digest_of(content):
    return "%s/%d" % (hashlib.sha256(content).hexdigest(), len(content))


def some_tree(rnd):
    files = {}
    for i in range(rnd.randrange(2, 9)):
        name = "f%d" % i if rnd.random() < 0.6 else "d%d/f%d" % (rnd.randrange(3), i)
        files[name] = some_content(rnd)
    return files


def write_tree(top, files):
    for name, content in files.items():
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)


def read_tree(top):
    files = {}
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as f:
                files[os.path.relpath(path, top)] = f.read()
    return files


class Calm:
    """Was the daemon up all the time since this was made?"""

    def __init__(self):
        self.generation = S.generation

    def __bool__(self):
        return self.generation == S.generation and self.generation % 2 == 0


class Worker(threading.Thread):
    def __init__(self, nr):
        super().__init__(name="worker %d" % nr)
        self.rnd = random.Random(SEED * 1000 + nr)
        self.dir = "%s/%d" % (WORK, nr)
        self.nr = 0

    def path(self):
        self.nr += 1
        return "%s/%d" % (self.dir, self.nr)

    def maybe_kill(self, most):
        return self.rnd.random() * most if self.rnd.random() < 0.25 else None

    def store(self, files=None, kill=True):
        """Put a file or a tree. Its digest when it was acknowledged, else None."""
        path = self.path()
        content = files or some_content(self.rnd)
        if files:
            write_tree(path, files)
        else:
            with open(path, "wb") as f:
                f.write(content)
        before = epoch()
        r = run("put", path, kill_after=self.maybe_kill(0.08) if kill else None)
        lines = r.out.decode().split()
        shutil.rmtree(path, ignore_errors=True) if files else os.unlink(path)
        if r.status not in (0, -signal.SIGKILL):
            # A quota this small can win every time; then that is said, and nothing promised.
            if b"evict" in r.err:
                S.count("lost to gc")
                return None
            raise Wrong("put: %s" % r)
        if not lines:
            return None
        if not files and lines[0] != digest_of(content):
            raise Wrong("put says %s for %s" % (lines[0], digest_of(content)))
        S.learn(lines[0], content)
        self.check_acknowledged(lines[0], content, before)
        return lines[0]

    def check_acknowledged(self, digest, content, before):
        """Nothing was evicted since before the put: it must be there."""
        if self.rnd.random() < 0.5:
            return
        ok = self.look(digest, content)
        if not ok and epoch() == before:
            raise Wrong("acknowledged and lost: %s" % digest)
        S.count("acknowledged, there" if ok else "acknowledged, evicted since")

    def look(self, digest, content):
        """By command: True and right, or False: absent."""
        if isinstance(content, dict):
            return self.look_tree(digest, content)
        r = run("cat", digest)
        if r.status == 0 and r.out != content:
            raise Wrong("cat %s: %d wrong bytes of %d" % (digest, len(r.out), len(content)))
        if r.status != 0 and not absent(r):
            raise Wrong("cat %s: %s" % (digest, r))
        return r.status == 0

    def look_tree(self, digest, files):
        dest = self.path()
        how = self.rnd.choice(("auto", "copy", "hardlink"))
        r = run("checkout", *([] if how == "auto" else ["--mode", how]), digest, dest)
        if r.status == 0:
            if read_tree(dest) != files:
                raise Wrong("checkout %s: other files" % digest)
            shutil.rmtree(dest)
            return True
        if not absent(r):
            raise Wrong("checkout %s: %s" % (digest, r))
        if os.path.exists(dest):
            raise Wrong("checkout %s failed and left something" % digest)
        return False

    # --- what a worker does ---

    def do_put(self):
        self.store()

    def do_put_tree(self):
        self.store(some_tree(self.rnd))

    def do_read(self):
        digest = S.any(self.rnd, (bytes, dict))
        if digest:
            content = S.known.get(digest)
            S.count("read there" if content and self.look(digest, content) else "read absent")

    def do_mount_read(self):
        digest = S.any(self.rnd, bytes)
        content = S.known.get(digest)
        calm = Calm()
        if not content:
            return
        try:
            with open("%s/cas/file/%s" % (MNT, digest.replace("/", "-")), "rb") as f:
                got = f.read()
        except OSError as e:
            # EIO: it was evicted between the look at its name and the open.
            gone = e.errno == errno.ENOENT or (e.errno == errno.EIO and not self.look(digest, content))
            if not gone and calm:
                raise Wrong("mount: %s: %s" % (digest, e))
            S.count("mount absent")
            return
        if got != content:
            raise Wrong("mount: %s: wrong bytes" % digest)
        S.count("mount right")

    def do_gc(self):
        words = ["gc", "--max-size", str(self.rnd.choice((0, 100000, 1 << 20, 2 << 20)))]
        calm = Calm()
        r = run(*words, *(["--dry-run"] if self.rnd.random() < 0.2 else []),
                kill_after=self.maybe_kill(0.1))
        if r.status not in (0, -signal.SIGKILL) and calm:
            raise Wrong("gc: %s" % r)
        S.count("gc, status %d" % r.status)

    def do_fsck(self):
        calm = Calm()
        r = run("fsck", *(["--repair"] if self.rnd.random() < 0.3 else []))
        if r.out:
            raise Wrong("fsck: %s" % r.out.decode(errors="replace")[:600])
        if r.status != 0 and calm:
            raise Wrong("fsck: %s" % r)

    def pinned_tree(self):
        """A tree that is whole and stays so: put again once it is pinned."""
        files = some_tree(self.rnd)
        for _ in range(50):
            digest = self.store(files, kill=False)
            if not digest:
                continue
            r = run("pin", digest)
            if r.status == 0:
                break
            if not absent(r) and b"evict" not in r.err:
                raise Wrong("pin: %s" % r)
        else:
            S.count("never pinned")
            return None, None
        if self.store(files, kill=False) != digest:
            must("unpin", digest)
            return None, None
        return digest, files

    def do_pin(self):
        digest, files = self.pinned_tree()
        if not digest:
            return
        for _ in range(self.rnd.randrange(1, 4)):
            time.sleep(self.rnd.random() * 0.5)
            if not self.look(digest, files):
                raise Wrong("pinned and lost: %s" % digest)
        S.count("pins kept")
        must("unpin", digest)

    def ask(self, *words):
        """The daemon, however often it dies; but not for ever."""
        end = time.time() + HANG
        while time.time() < end and not S.stop.is_set():
            calm = Calm()
            r = run(*words)
            if r.status == 0:
                return r
            if calm:
                raise Wrong("%s: %s" % (" ".join(words)[:200], r))
            time.sleep(0.1)
        if S.stop.is_set():
            raise Stopped()
        raise Wrong("%s: no answer in %d s" % (words, HANG))

    def do_sandbox(self):
        digest, files = self.pinned_tree()
        if not digest:
            return
        name = "%s-%d" % (self.name.split()[1], self.nr)
        self.create(name, digest)
        must("unpin", digest)
        try:
            self.use(name, files)
        finally:
            self.remove(name)
        S.count("sandboxes")

    def create(self, name, digest):
        end = time.time() + HANG
        while True:
            calm = Calm()
            r = run("sandbox", "create", "--root", digest, "--id", name, "--output", "out/",
                    "--mount", MNT)
            # It may exist although its maker was not told.
            if r.status == 0 or b"in use" in r.err:
                return
            if calm or time.time() > end:
                raise Wrong("create: %s" % r)
            if S.stop.is_set():
                raise Stopped()
            time.sleep(0.1)

    def use(self, name, files):
        for _ in range(self.rnd.randrange(1, 4)):
            self.read_inputs(name, files)
            time.sleep(self.rnd.random() * 0.6)
        wrote = self.write_outputs(name)
        r = self.ask("sandbox", "finish", name, "--mount", MNT)
        self.read_inputs(name, files)
        if wrote is None:
            return
        again = self.ask("sandbox", "finish", name, "--mount", MNT)
        if again.out != r.out:
            raise Wrong("finish says %r, then %r" % (r.out, again.out))
        digest = r.out.decode().split("\n")[0].split("\t")[1]
        time.sleep(self.rnd.random() * 0.4)
        if not self.look(digest, wrote):
            raise Wrong("outputs of %s are lost: %s" % (name, digest))

    def read_inputs(self, name, files):
        for path, content in files.items():
            while not S.stop.is_set():
                calm = Calm()
                try:
                    with open("%s/sandboxes/%s/%s" % (MNT, name, path), "rb") as f:
                        got = f.read()
                except OSError as e:
                    if e.errno not in DOWN or calm:
                        raise Wrong("input %s/%s: %s" % (name, path, e))
                    time.sleep(0.1)
                    continue
                if got != content:
                    raise Wrong("input %s/%s: wrong bytes" % (name, path))
                S.count("inputs read")
                break

    def write_outputs(self, name):
        """None: the daemon died meanwhile, so that nobody knows what arrived."""
        files = {"o%d" % i: some_content(self.rnd) for i in range(self.rnd.randrange(1, 5))}
        calm = Calm()
        try:
            for path, content in files.items():
                # Makes no directory: without a mount this would be the bare mount point.
                with open("%s/sandboxes/%s/out/%s" % (MNT, name, path), "wb") as f:
                    f.write(content)
        except OSError as e:
            if calm:
                raise Wrong("outputs of %s: %s" % (name, e))
            return None
        return files if calm else None

    def remove(self, name):
        end = time.time() + HANG
        while time.time() < end:
            r = run("sandbox", "remove", name, "--mount", MNT)
            if r.status == 0 or b"no sandbox" in r.err:
                return
            time.sleep(0.1)
        S.fail("remove %s: %s" % (name, r))

    def run(self):
        os.makedirs(self.dir)
        todo = [self.do_put] * 5 + [self.do_put_tree] * 5 + [self.do_read] * 4 + [self.do_mount_read] * 4
        todo += [self.do_gc] * 2 + [self.do_pin] * 2 + [self.do_sandbox] * 3 + [self.do_fsck]
        while not S.stop.is_set():
            if S.pause.is_set():
                wait_turn()
                continue
            try:
                self.rnd.choice(todo)()
            except Stopped:
                return
            except Wrong as e:
                S.fail("%s: %s" % (self.name, e))
            except Exception as e:  # a bug of this program is a failure, too
                S.fail("%s: %r" % (self.name, e))
                raise


class Stopped(Exception):
    pass


def wait_turn():
    with S.lock:
        S.waiting += 1
    while S.pause.is_set() and not S.stop.is_set():
        time.sleep(0.05)
    with S.lock:
        S.waiting -= 1


class Daemon(threading.Thread):
    """Keeps one running, and kills it."""

    def __init__(self):
        super().__init__(name="daemon")
        self.rnd = random.Random(SEED)
        self.process = None
        self.log = open(DIR + "/daemon.log", "ab")

    def start_one(self):
        end = time.time() + HANG
        while not S.stop.is_set():
            self.process = subprocess.Popen([CASBOX, "mount", "-f", "--idle", "0", MNT], env=ENV,
                                            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            while self.process.poll() is None and time.time() < end:
                if self.is_up():
                    S.generation += 1
                    S.count("daemons")
                    return
                time.sleep(0.02)
            # A command without a daemon has the store for a moment.
            if time.time() > end:
                raise Wrong("no daemon comes up; see daemon.log")
            time.sleep(0.1)

    def is_up(self):
        try:
            return os.path.exists(MNT + "/.casbox/control") and self.process.poll() is None and \
                str(self.process.pid) in open(STORE + "/run/daemon").read()
        except OSError:
            return False

    def kill_one(self, how=signal.SIGKILL):
        S.generation += 1
        self.process.send_signal(how)
        self.process.wait()

    def run(self):
        try:
            while not S.stop.is_set():
                self.start_one()
                end = time.time() + self.rnd.choice((0.3, 2, 4, 8)) * (0.5 + self.rnd.random())
                while time.time() < end and not S.stop.is_set():
                    if S.pause.is_set():
                        wait_turn()
                    time.sleep(0.02)
                    if self.process.poll() is not None:
                        raise Wrong("the daemon ended by itself: %s" % self.process.returncode)
                if S.stop.is_set():
                    break
                self.kill_one()
                time.sleep(self.rnd.choice((0, 0.2, 1)) * self.rnd.random())
        except Wrong as e:
            S.fail("daemon: %s" % e)
        except Exception as e:
            S.fail("daemon: %r" % e)
            raise


def walk():
    nr = size = disk = 0
    for shard in os.scandir(BLOBS + "/cas"):
        for f in os.scandir(shard.path):
            if len(f.name) == 64:
                st = f.stat(follow_symlinks=False)
                nr, size, disk = nr + 1, size + st.st_size, disk + st.st_blocks * 512
    return nr, size, disk


def counted():
    st = json.loads(must("stat", "--json").out)
    return st["blobs"], st["bytes"], st["disk_bytes"]


def check_everything(what):
    if SPOOL:
        must("gc", "--drain")
    before = counted()
    # What killed puts have not told of is found by names.
    must("gc", "--max-size", "1T")
    end = time.time() + 20
    while walk() != counted() and time.time() < end:
        time.sleep(0.1)
    if walk() != counted():
        raise Wrong("%s: stat counts %s, a walk %s" % (what, counted(), walk()))
    S.count("counts compared")
    if before[0] != counted()[0]:
        S.count("blobs not recorded before", abs(before[0] - counted()[0]))
    r = run("fsck")
    if r.status != 0:
        raise Wrong("%s: fsck: %s %s" % (what, r.out.decode(errors="replace")[:600], r))


def everybody_stops(nr):
    S.pause.set()
    end = time.time() + HANG
    while S.waiting < nr and time.time() < end and not S.stop.is_set():
        time.sleep(0.05)
    try:
        if S.waiting < nr and not S.stop.is_set():
            raise Wrong("some do not come to an end")
        if not S.stop.is_set():
            check_everything("round")
    except Wrong as e:
        S.fail(str(e))
    S.pause.clear()
    while S.waiting and not S.stop.is_set():
        time.sleep(0.02)


def temporaries():
    found = []
    for top in {STORE, BLOBS}:
        for base, _, names in os.walk(top):
            found += [os.path.join(base, n) for n in names if n.startswith((".tmp-", ".bad-"))]
    return found


def end_well():
    """All is over: nothing is needed any more, and nothing may be left."""
    must("gc", "--max-size", "0")
    check_everything("the end")
    bad = [p for p in temporaries() if "/.bad-" in p]
    if bad:
        raise Wrong("moved aside: %s" % bad[:5])
    S.count("temporaries of killed ones", len(temporaries()))
    for path in temporaries():
        os.utime(path, (time.time() - 2 * 86400,) * 2, follow_symlinks=False)
    must("gc", "--max-size", "0")
    if temporaries():
        raise Wrong("temporaries are left: %s" % temporaries()[:5])
    if walk()[0] != 0:
        raise Wrong("gc to nothing leaves %s" % (walk(),))
    for place in ("sandboxes", "pins"):
        # A stock of empty layers is the next daemon's to clear away.
        left = [n for n in os.listdir("%s/%s" % (STORE, place)) if not n.startswith(".pool-")]
        if left:
            raise Wrong("left in %s: %s" % (place, left[:5]))


def removed_ones():
    return [n for n in os.listdir(STORE + "/sandboxes") if n.startswith(".gone-")]


def end_daemon(daemon):
    """One that ends in peace, when it has cleared away behind the killed ones."""
    if S.generation % 2:
        daemon.process.kill()
        daemon.process.wait()
        daemon.start_one()
    # Who was told to stop in the midst of it has left a pin, or a sandbox.
    for name in os.listdir(STORE + "/pins"):
        must("unpin", name)
    for name in os.listdir(STORE + "/sandboxes"):
        if not name.startswith("."):
            must("sandbox", "remove", name, "--mount", MNT)
    end = time.time() + 60
    while removed_ones() and time.time() < end:
        time.sleep(0.1)
    daemon.kill_one(signal.SIGTERM)


def main():
    for d in (MNT, WORK):
        os.makedirs(d)
    if SPOOL:
        # That it was there makes it nobody's own, where blobs may go however young they are.
        os.makedirs(BLOBS + "/cas")
    daemon = Daemon()
    workers = [Worker(i) for i in range(6)]
    end = time.time() + SECONDS
    daemon.start()
    for w in workers:
        w.start()
    while time.time() < end and not S.stop.is_set():
        S.stop.wait(min(ROUND, max(1, end - time.time())))
        if not S.stop.is_set():
            everybody_stops(len(workers) + 1)
            print("%5.0f s left: %s" % (end - time.time(), json.dumps(S.counts, sort_keys=True)), flush=True)
    S.stop.set()
    for w in workers:
        w.join()
    daemon.join()
    try:
        if S.error is None:
            S.stop.clear()
            end_daemon(daemon)
        if S.error is None:
            end_well()
    except Wrong as e:
        S.fail(str(e))
    if daemon.process and daemon.process.poll() is None:
        daemon.process.kill()
    print("storm: %s" % json.dumps(S.counts, sort_keys=True))
    print("storm: %s" % (S.error or "nothing wrong"), flush=True)
    # Threads that wait for what will not come are no reason to stay.
    os._exit(1 if S.error else 0)


main()
