#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim counts as lost is said at the end of the way: each loss planted
in a real process (one of them in its file), then merged and explained, as text
and as JSON, by name, with its count and, where known, its time.

  losses_test.py --ingero I --shim S --client harm_client --tests tests/preload
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
IDS = {1: "write-failed", 2: "no-slot", 3: "reentrant", 6: "names-dropped",
       7: "ranges-dropped", 8: "captures-dropped", 9: "stream-deleted"}


class LossesTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-losses-", dir="/var/tmp")
        # For those that become nobody.
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.trace = os.path.join(self.dir, "trace")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=self.trace, INGERO_DIR_ONLY="1")

    def record(self, *args, file_bytes=None):
        def limit():
            if file_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE,
                                   (file_bytes, file_bytes))
        return subprocess.run([OPTIONS.client, *map(str, args)],
                              env={**self.env, "LD_PRELOAD": OPTIONS.shim},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=120, preexec_fn=limit)

    def ingero(self, *args):
        return subprocess.run([OPTIONS.ingero, *args], env=self.env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120)

    def check(self, *expected):
        """The stream's own counters, which are to hold all of `expected`,
        against what is said."""
        stream, = read_stream.load_folder(self.trace)
        self.assertLessEqual(set(expected), {IDS[i] for i in stream.lost})
        merged = self.ingero("merge", "--strict")
        self.assertEqual(merged.returncode, 3, merged.stderr)
        text = self.ingero("explain")
        self.assertEqual(text.returncode, 0, text.stderr)
        report = json.loads(self.ingero("explain", "--json").stdout)
        losses = report["trace"]["losses"]
        for loss, count in stream.lost.items():
            name = IDS[loss]
            rows = [r for r in losses if r["id"] == name]
            self.assertEqual(sum(r["count"] for r in rows), count, name)
            for r in rows:
                self.assertEqual((r["side"], r["severity"]), ("cuda", "loss"))
                self.assertLess(r["begin_ns"], r["end_ns"])
                self.assertTrue(r["text"])
            # In one line, however many ranges there are.
            self.assertEqual(" ".join(merged.stderr.split()).count(
                f" {count:,} x {name}:"), 1, merged.stderr)
            said = " ".join(text.stdout.split())
            self.assertIn(f"({name})", said)
            self.assertRegex(said, f"{count:,} events? .{name}")
            self.assertNotIn("-0.0", said)
            # Placed in time: within the trace, and what a thread knows of its
            # own records not over all of it.
            span = report["trace"]["span"]
            if sum(x[1] for x in stream.losses if x[0] == loss) == count:
                self.assertGreater(rows[0]["begin_ns"], span["begin_ns"])
        return stream

    def test_descriptors_used_up(self):
        self.record("trouble", 3000, "descriptors")
        self.check("write-failed", "no-slot")

    def test_system_calls_denied(self):
        done = self.record("trouble", 3000, "seccomp")
        if done.stdout.startswith("skip"):
            self.skipTest(done.stdout)
        self.check("write-failed")

    def test_folder_out_of_reach(self):
        if os.geteuid() != 0:
            self.skipTest("chroot and setuid need root")
        for how in "chroot", "setuid":
            self.record("trouble", 3000, how)
            self.check("write-failed", "no-slot")
            shutil.rmtree(self.trace)

    def test_no_space_in_the_middle(self):
        done = self.record("trouble", 5000, "none", file_bytes=5 << 16)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"))
        stream = self.check("write-failed")
        self.assertGreater(len(stream.calls), 5000)

    def test_names_that_are_too_long(self):
        self.record("kernels", 9, 20000)
        stream = self.check("names-dropped")
        self.assertEqual(stream.lost, {6: 9})
        self.assertEqual({len(n) for n in stream.kernels.values()}, {16384})

    def test_names_without_space(self):
        self.record("kernels", 300, 5000, file_bytes=3 << 16)
        stream = self.check("write-failed", "names-dropped")
        self.assertGreaterEqual(len(stream.kernels) + stream.lost[6], 300)

    def test_ranges_within_too_many(self):
        client = os.path.join(os.path.dirname(OPTIONS.client),
                              "nvtx_client_stand_in")
        self.env["NVTX_INJECTION64_PATH"] = OPTIONS.shim
        subprocess.run([client], stdout=subprocess.PIPE, check=True,
                       env={**self.env, "LD_PRELOAD": OPTIONS.shim})
        # One of the two is a forked child.
        child = min(read_stream.load_folder(self.trace),
                    key=lambda s: len(s.calls))
        os.unlink(child.path)
        stream = self.check("ranges-dropped")
        self.assertEqual(stream.lost, {7: 37})  # 1 and 100 open, 64 kept

    def test_recording_that_began_late(self):
        self.record("late_start", 700)
        self.check("no-slot")

    def test_calls_made_inside_the_recorder(self):
        # When a handler comes is chance: the counter is set in the file.
        self.record("trouble", 3000, "none")
        stream, = read_stream.load_folder(self.trace)
        with open(stream.path, "r+b") as f:
            f.seek(416 + 8 * 3)
            f.write((7).to_bytes(8, "little"))
        self.check("reentrant")

    def test_deleted_folder(self):
        # The file is gone; what was lost is in a new one, made at exit.
        done = self.record("trouble", 3000, "deleted")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "done\n", ""))
        stream = self.check("write-failed", "no-slot", "stream-deleted")
        self.assertGreaterEqual(stream.lost[9], 2)  # a slot, and written ones
        # Only what a library calls at its own end.
        self.assertLess(len(stream.calls), 10)
        self.assertEqual(stream.exited, 1)
        self.assertIsNotNone(stream.process)
        self.assertGreater(len(stream.coverage), 0)
        self.assertEqual(os.stat(self.trace).st_mode & 0o777, 0o700)

    def test_folder_that_was_moved_is_not_deleted(self):
        done = self.record("trouble", 3000, "moved")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "done\n", ""))
        self.assertFalse(os.path.exists(self.trace))
        stream, = read_stream.load_folder(self.trace + "-moved")
        self.assertEqual(stream.exited, 1)
        self.assertEqual(set(stream.lost), {1, 2})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in "ingero", "shim", "client", "tests":
        parser.add_argument(f"--{name}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, OPTIONS.tests)
    import read_stream
    unittest.main(argv=[sys.argv[0], "-v", *rest])
