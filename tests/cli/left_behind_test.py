#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command that writes, on a disk without room and ended by a signal in
the middle: one line names what cannot be written, not what was read, and says
what to do; nothing half written stays behind.

  left_behind_test.py --ingero I --store DB --program P TEST-CLASS
"""
import argparse
import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

OPTIONS = None
DISK_KIB = 24


def big_trace(path):
    """As torch.profiler writes it, of more than the disk has room for."""
    events = []
    for i in range(20000):
        t = 1_700_000_000_000_000 + 20 * i
        events.append({"ph": "X", "cat": "cuda_runtime",
                       "name": "cudaLaunchKernel", "pid": 7, "tid": 7,
                       "ts": t, "dur": 5 + i % 7, "args": {"correlation": i}})
    with open(path, "w") as f:
        json.dump({"traceEvents": events}, f)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.streams = tempfile.mkdtemp(prefix="ingero-left-behind-",
                                       dir="/var/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.streams, ignore_errors=True)
        subprocess.run([OPTIONS.ingero, "run", "-q", "--cuda-only", "--dir",
                        cls.streams, OPTIONS.program, "--steps", "10"],
                       check=True, capture_output=True, timeout=120)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-left-behind-",
                                    dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.out = os.path.join(self.dir, "out")
        os.mkdir(self.out)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=os.path.join(self.dir, "traces"),
                        INGERO_DIR_ONLY="1")
        self.trace = os.path.join(self.dir, "t.json")
        big_trace(self.trace)

    def writers(self):
        """Commands, but for the last word: what they write."""
        store = OPTIONS.store
        yield ["merge", "--dir", self.streams, "-o"]
        yield ["import", self.trace, "-o"]
        yield ["share", store, "-o"]
        yield ["store", "compact", store, "-o"]
        yield ["store", "prune", store, "--keep", "30s", "-o"]
        yield ["report", "--db", store, "-o"]
        for form in "perfetto", "chrome", "csv":
            yield ["export", "--db", store, "--format", form, "-o"]
        if importlib.util.find_spec("pyarrow"):
            for form in "parquet", "arrow":
                yield ["export", "--db", store, "--format", form, "-o"]


class FullDiskTest(Case):
    """Needs root: the disk is a small tmpfs."""

    def setUp(self):
        super().setUp()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k",
                        "tmpfs", self.out], check=True)
        self.addCleanup(subprocess.run, ["umount", self.out], check=True)

    def test_it_is_said_and_nothing_stays(self):
        for words in self.writers():
            output = os.path.join(self.out, "x")
            with self.subTest(" ".join(words)):
                done = subprocess.run([OPTIONS.ingero, *words, output],
                                      env=self.env, text=True,
                                      capture_output=True, timeout=120)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(output, done.stderr)
                self.assertIn("No space left on device", done.stderr)
                self.assertIn("free some space", done.stderr)
                self.assertNotIn(OPTIONS.store, done.stderr)
                self.assertNotIn(self.trace, done.stderr)
                if words[-2] not in ("parquet", "arrow"):  # whole files stay
                    self.assertEqual(os.listdir(self.out), [])
                shutil.rmtree(output, ignore_errors=True)

    def test_a_store_that_is_there_stays_as_it_is(self):
        """In its own place there is no room for a second one."""
        store = os.path.join(self.out, "s")
        small = os.path.join(self.dir, "small")
        self.check(["store", "prune", OPTIONS.store, "--keep", "1s", "-o",
                    small])
        subprocess.run(["mount", "-o", "remount,size=4m", self.out],
                       check=True)
        shutil.copytree(small, store)
        with open(store + "/data.mdb", "rb") as f:
            before = f.read()
        room = os.statvfs(self.out)
        with open(self.out + "/filler", "wb") as f:
            f.write(b"x" * (room.f_bavail * room.f_frsize))
        done = subprocess.run([OPTIONS.ingero, "store", "prune", store,
                               "--keep", "100ms"], env=self.env, text=True,
                              capture_output=True, timeout=60)
        if done.returncode == 0:  # it had nothing to drop
            self.assertIn("Nothing to drop", done.stdout)
        else:
            self.assertIn("No space left", done.stderr)
        with open(store + "/data.mdb", "rb") as f:
            self.assertEqual(f.read(), before)
        self.assertNotIn("data.mdb.new", os.listdir(store))

    def check(self, words):
        done = subprocess.run([OPTIONS.ingero, *words], env=self.env,
                              text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_nothing_can_be_recorded(self):
        """Said before the program runs, not found out after it."""
        folder = os.path.join(self.out, "traces")
        os.mkdir(folder)
        with open(self.out + "/filler", "wb") as f:
            f.write(b"x" * 4096 * (DISK_KIB // 4 - 2))
        ran = os.path.join(self.dir, "it_ran")
        done = subprocess.run([OPTIONS.ingero, "run", "--cuda-only", "--dir",
                               folder, "touch", ran], env=self.env, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(f"nothing can be recorded: cannot write {folder}: No "
                      "space left", done.stderr)
        self.assertFalse(os.path.exists(ran))
        self.assertEqual(os.listdir(folder), [])
        # Read-only: even root sees it.
        subprocess.run(["mount", "-o", "remount,ro", self.out], check=True)
        done = subprocess.run([OPTIONS.ingero, "run", "--cuda-only", "--dir",
                               folder, "touch", ran], env=self.env, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("its file system can only be read", done.stderr)
        self.assertFalse(os.path.exists(ran))

    def test_full_while_it_is_recorded(self):
        """The reason is the disk, not that there was no call."""
        folder = os.path.join(self.out, "traces")
        subprocess.run(["mount", "-o", "remount,size=1m", self.out],
                       check=True)
        fill = f"dd if=/dev/zero of={self.out}/filler bs=4k 2>/dev/null"
        done = subprocess.run([OPTIONS.ingero, "run", "--cuda-only", "--dir",
                               folder, "sh", "-c",
                               f"{fill}; {OPTIONS.program} --steps 10"],
                              env=self.env, text=True, capture_output=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("made no CUDA call", done.stderr)
        self.assertIn("nothing was recorded: cannot write", done.stderr)


class LimitTest(Case):
    """A limit on the size of files, whose signal would end us without a word."""

    def limited(self, words, kib=4):
        return subprocess.run(
            [OPTIONS.ingero, *words], env=self.env, text=True,
            capture_output=True, timeout=120,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (kib << 10, kib << 10)))

    def test_it_is_said_and_nothing_stays(self):
        for words in self.writers():
            if words[-2] in ("parquet", "arrow"):  # pyarrow's to say
                continue
            output = os.path.join(self.out, "x")
            with self.subTest(" ".join(words)):
                done = self.limited([*words, output])
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("File too large", done.stderr)
                self.assertIn("ulimit -f", done.stderr)
                self.assertEqual(os.listdir(self.out), [])

    def test_nothing_can_be_recorded(self):
        ran = os.path.join(self.dir, "it_ran")
        done = self.limited(["run", "--cuda-only", "--dir", self.out, "touch",
                             ran])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("nothing can be recorded", done.stderr)
        self.assertIn("ulimit -f", done.stderr)
        self.assertFalse(os.path.exists(ran))
        self.assertEqual(os.listdir(self.out), [])

    def test_the_program_gets_the_signal(self):
        """It is ignored for us alone."""
        done = self.limited(["run", "-q", "--cuda-only", "--dir", self.out,
                             "dd", "if=/dev/zero", f"of={self.dir}/big",
                             "bs=1M", "count=2"], kib=1024)
        self.assertEqual(done.returncode, 128 + signal.SIGXFSZ, done.stderr)


class PipeTest(Case):
    def test_a_pipe_that_nobody_reads(self):
        pipe = os.path.join(self.out, "pipe")
        os.mkfifo(pipe)
        for words in self.writers():
            with self.subTest(" ".join(words)):
                done = subprocess.run([OPTIONS.ingero, *words, pipe],
                                      env=self.env, text=True,
                                      capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(pipe, done.stderr)

    def test_a_pipe_that_is_read(self):
        pipe = os.path.join(self.out, "pipe")
        os.mkfifo(pipe)
        copy = os.path.join(self.dir, "copy")
        with subprocess.Popen(["sh", "-c", f"exec cat {pipe} >{copy}"]) as cat:
            done = subprocess.run(
                ["sh", "-c", f"exec 3>{pipe}; exec \"$@\"", "sh",
                 OPTIONS.ingero, "report", "--db", OPTIONS.store, "-o", pipe],
                env=self.env, text=True, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(cat.wait(timeout=60), 0)
        with open(copy) as f:
            self.assertTrue(f.read().endswith("</html>\n"))


class StoppedTest(Case):
    def test_nothing_half_written_stays(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            for words in self.writers():
                with self.subTest(f"{number}: " + " ".join(words)):
                    self.stop(words, number)

    def stop(self, words, number):
        output = os.path.join(self.out, "x")
        p = subprocess.Popen([OPTIONS.ingero, *words, output], env=self.env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True)
        # As soon as there is something to leave behind.
        deadline = time.monotonic() + 60
        while p.poll() is None and not os.listdir(self.out):
            self.assertLess(time.monotonic(), deadline)
        p.send_signal(number)
        err = p.communicate(timeout=60)[1]
        left = [name for _, folders, files in os.walk(self.out)
                for name in folders + files]
        if p.returncode == 0:  # it was done before
            self.assertNotIn("stopped", err)
        else:
            self.assertIn(p.returncode, (-number, 128 + number, 130), err)
            if words[-2] not in ("parquet", "arrow"):
                self.assertEqual([n for n in left if n != "x"], [], err)
        for name in left:
            self.assertFalse(name.endswith((".part", ".new")), (left, err))
            self.assertNotIn(".import.", name)
        shutil.rmtree(self.out)
        os.mkdir(self.out)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store", "program"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    if "FullDiskTest" in rest:
        why = "not root" if os.geteuid() != 0 else ""
        if not why:
            with tempfile.TemporaryDirectory() as folder:
                tried = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder],
                                       capture_output=True, text=True)
                why = tried.stderr.strip()
                if tried.returncode == 0:
                    subprocess.run(["umount", folder], check=True)
        if why:
            print("SKIP: no tmpfs can be mounted: " + why)
            return 77
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
