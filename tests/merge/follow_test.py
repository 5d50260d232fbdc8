#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero merge --follow` beside programs that are being recorded, and what
Ctrl-C leaves of a merge.

  follow_test.py --ingero I --shim S --runtime libcudart.so"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

OPTIONS = None
PATIENCE_S = 120

# Makes as many pairs of calls as each line says, then answers.
CLIENT = """
import ctypes, sys
rt = ctypes.CDLL(sys.argv[1])
for line in sys.stdin:
    for i in range(int(line)):
        assert rt.cudaStreamQuery(None) == 0
        assert rt.cudaDeviceSynchronize() == 0
    print("made", flush=True)
"""


class FollowTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-follow-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.trace = os.path.join(self.dir, "trace")
        os.mkdir(self.trace)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=self.trace, INGERO_DIR_ONLY="1")
        self.running = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def client(self):
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, OPTIONS.runtime], text=True,
            env={**self.env, "LD_PRELOAD": OPTIONS.shim,
                 "LD_LIBRARY_PATH": os.path.dirname(OPTIONS.runtime)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.running.append(process)
        return process

    def make_calls(self, client, pairs):
        client.stdin.write(f"{pairs}\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), "made\n")

    def follow(self, *args):
        process = subprocess.Popen([OPTIONS.ingero, "merge", "--follow", *args],
                                   env=self.env, text=True,
                                   stderr=subprocess.PIPE)
        self.running.append(process)
        return process

    def round(self, follow, least):
        """The next round after which the store holds so many events."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            line = follow.stderr.readline()
            self.assertTrue(line, "it ended too early")
            found = re.search(r"  ([\d,]+) events? new, ([\d,]+) in all; holds "
                              r"what was recorded until [\d.]+ s ago; next "
                              r"merge in \d+ s$", line)
            if not found:
                self.assertIn("waiting for a recording", line)
                continue
            total = int(found[2].replace(",", ""))
            if total >= least:
                return total
        self.fail(f"no round with {least} events")

    def store(self):
        name, = (n for n in os.listdir(self.trace) if n.endswith(".store"))
        return os.path.join(self.trace, name)

    def read(self, *path):
        with open(os.path.join(*path), "rb") as file:
            return file.read()

    def ingero(self, *args):
        return subprocess.run([OPTIONS.ingero, *args], env=self.env, text=True,
                              capture_output=True, timeout=PATIENCE_S)

    def test_grows_until_the_last_writer_ends(self):
        follow = self.follow()
        self.assertIn("waiting for a recording", follow.stderr.readline())
        first = self.client()
        self.make_calls(first, 3000)
        total = self.round(follow, 6000)

        # A reader keeps the file that it has opened.
        store = self.store()
        with open(os.path.join(store, "data.mdb"), "rb") as reader:
            before = reader.read()
            self.make_calls(first, 2000)
            total = self.round(follow, total + 4000)
            self.assertNotEqual(
                os.fstat(reader.fileno()).st_ino,
                os.stat(os.path.join(store, "data.mdb")).st_ino)
            reader.seek(0)
            self.assertEqual(reader.read(), before)
        explained = self.ingero("explain", "--db", store)
        self.assertEqual(explained.returncode, 0, explained.stderr)

        # A process that appears meanwhile, and outlives the first.
        second = self.client()
        self.make_calls(second, 1000)
        total = self.round(follow, total + 2000)
        first.stdin.close()
        self.assertEqual(first.wait(PATIENCE_S), 0)
        self.make_calls(second, 1000)
        total = self.round(follow, total + 2000)
        self.make_calls(second, 500)
        second.stdin.close()
        self.assertEqual(second.wait(PATIENCE_S), 0)
        said = follow.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(follow.returncode, 0, said)
        self.assertIn("2 CUDA streams", said)

        # The same as one merge of all that was recorded.
        other = os.path.join(self.dir, "other")
        self.assertEqual(self.ingero("merge", "-o", other).returncode, 0)
        self.assertTrue(self.read(store, "data.mdb") ==
                        self.read(other, "data.mdb"))

    def test_ctrl_c_leaves_the_last_merge(self):
        client = self.client()
        self.make_calls(client, 1000)
        follow = self.follow()
        self.round(follow, 2000)
        follow.send_signal(signal.SIGINT)
        said = follow.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(follow.returncode, -signal.SIGINT)
        self.assertIn("stopped; the store is as the last merge left it", said)
        self.assertEqual(set(os.listdir(self.store())),
                         {"data.mdb", "merge.lock"})
        self.assertEqual(self.ingero("explain").returncode, 0)

    def test_ctrl_c_while_it_merges(self):
        client = self.client()
        self.make_calls(client, 200_000)
        client.stdin.close()
        self.assertEqual(client.wait(PATIENCE_S), 0)
        stopped = 0
        for _ in range(20):
            merge = subprocess.Popen([OPTIONS.ingero, "merge"], env=self.env,
                                     text=True, stderr=subprocess.PIPE)
            self.running.append(merge)
            new = None
            while merge.poll() is None and new is None:
                new = next((os.path.join(self.trace, n, "data.mdb.new")
                            for n in os.listdir(self.trace)
                            if os.path.exists(os.path.join(
                                self.trace, n, "data.mdb.new"))), None)
            merge.send_signal(signal.SIGINT)
            merge.communicate(timeout=PATIENCE_S)
            if merge.returncode == 0:
                break
            self.assertEqual(merge.returncode, -signal.SIGINT)
            self.assertFalse(os.path.exists(new or ""))
            stopped += 1
            if os.path.exists(os.path.join(self.store(), "data.mdb")):
                break
        self.assertGreater(stopped, 0)
        self.assertEqual(self.ingero("merge").returncode, 0)
        self.assertEqual(self.ingero("explain").returncode, 0)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for name in ("ingero", "shim", "runtime"):
        parser.add_argument(f"--{name}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
