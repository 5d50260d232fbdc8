#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero overhead`: runs the command in all ways that it may, counts what was
recorded, leaves nothing behind, and says what went wrong.

  overhead_test.py --ingero I --shim S --cudart FAKE [TESTS]
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import reachable  # noqa: E402

OPTIONS = None
CALLS = 300
PROGRAM = f"""
import ctypes, sys
print("this must not be seen")
rt = ctypes.CDLL(sys.argv[1])
for _ in range({CALLS}):
    assert rt.cudaStreamQuery(None) == 0
"""


def alive_in(group):
    """Pids of a process group. Who is dead and not yet waited for is not."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                state, _, pgrp = f.read().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in "ZX":
            found.append(int(pid))
    return found


class OverheadCase(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-overhead-test-",
                                    dir="/var/tmp")
        os.chmod(self.dir, 0o777)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(TMPDIR=self.dir, FAKE_CUDA="context_ms=1")
        self.command = [sys.executable, "-c", PROGRAM, OPTIONS.cudart]

    def overhead(self, *args, prefix=(), ingero=None, status=0, **env):
        done = subprocess.run([*prefix, ingero or OPTIONS.ingero, "overhead",
                               *args],
                              env={**self.env, **env}, text=True,
                              capture_output=True, timeout=200)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(os.listdir(self.dir), [])
        self.assertEqual((done.stderr == "", done.stdout == ""),
                         (status == 0, status != 0))
        return done.stdout + done.stderr

    def modes(self, *args, **more):
        report = json.loads(self.overhead("--json", *args, "--", *self.command,
                                          **more))
        return report, {m["mode"]: m for m in report["modes"]}

    WITHOUT_RIGHTS = ("setpriv", "--reuid", "65534", "--regid", "65534",
                      "--clear-groups", "--inh-caps=-all")


class ShimTest(OverheadCase):
    def test_every_call_is_counted(self):
        report, modes = self.modes("--rounds", "2")
        self.assertEqual(report["rounds"], 2)
        self.assertGreaterEqual(modes["shim"]["calls"], CALLS)
        self.assertGreater(report["ns_per_call"], 0)
        self.assertGreaterEqual(modes["shim"]["shim_ms"] * 1e6,
                                modes["shim"]["calls"] * report["ns_per_call"])
        self.assertEqual(modes["bare"].keys(), {"mode", "seconds"})
        for mode in modes.values():
            seconds = mode["seconds"]
            self.assertLessEqual(seconds["low"], seconds["median"])
            self.assertLessEqual(seconds["median"], seconds["high"])
            self.assertEqual(seconds["probability"], 0.5)

    def test_text(self):
        text = self.overhead("--rounds", "1", "--", *self.command,
                             INGERO_DIR="/nowhere", COLUMNS="200")
        self.assertNotIn("this must not be seen", text)
        self.assertRegex(text, r"(?m)^bare .* 1 round$")
        self.assertRegex(" ".join(text.split()), r"with the shim \S+ \S+ in the "
                         r"median; each run against the bare one of its round: "
                         r"[-+]\d+\.\d+ % in the median")
        self.assertRegex(text, r"the shim accounts for .* calls at \d+ ns")
        text = self.overhead("--rounds", "1", "--", "true", COLUMNS="200")
        self.assertIn("no CUDA call was recorded", text)

    def test_companion_is_left_out_without_rights(self):
        # Who has no rights may not be able to run this interpreter.
        self.command = ["true"]
        own = reachable.copy(self, OPTIONS.ingero)
        # Nor may who is not root become another user.
        drop = self.WITHOUT_RIGHTS if os.geteuid() == 0 else ()
        report, modes = self.modes("--rounds", "1", prefix=drop,
                                   ingero=os.path.join(own, "bin", "ingero"))
        self.assertEqual(list(modes), ["bare", "shim"])
        self.assertIn("sudo ingero overhead", report["companion_left_out"])

    def test_failing_command(self):
        text = self.overhead("--", "sh", "-c", "echo out; echo why >&2; exit 3",
                             status=1)
        self.assertIn("sh ended with status 3 bare: why", text)
        text = self.overhead("--", "/nowhere/program", status=1)
        self.assertIn("/nowhere/program", text)
        # Under the shim alone.
        text = self.overhead("--rounds", "1", "--", "sh", "-c",
                             'test -z "$INGERO_DIR"', status=1)
        self.assertIn("status 1 with the shim", text)

    def test_usage(self):
        self.assertIn("after --", self.overhead(status=2))
        self.assertIn("after --", self.overhead("--", status=2))
        self.assertIn("--rounds", self.overhead("--rounds", "0", "--", "true",
                                                status=2))
        self.assertIn("/nowhere", self.overhead("--dir", "/nowhere", "--",
                                                "true", status=1))
        self.assertIn("LD_PRELOAD", self.overhead(
            "--", "true", status=2, LD_PRELOAD=OPTIONS.shim))

    def test_interrupted(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            running = os.path.join("/var/tmp", f"ingero-overhead-{os.getpid()}")
            with subprocess.Popen(
                    [OPTIONS.ingero, "overhead", "--", "sh", "-c",
                     f"echo $$ > {running}; sleep 100 & wait"], env=self.env,
                    text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE) as run:
                while not (os.path.exists(running) and
                           os.path.getsize(running)):
                    self.assertIsNone(run.poll())
                    time.sleep(0.05)
                with open(running, encoding="utf-8") as f:
                    group = int(f.read())
                os.unlink(running)
                run.send_signal(sent)
                out, err = run.communicate(timeout=60)
            self.assertEqual((run.returncode, out), (128 + sent, ""))
            self.assertIn("interrupted", err)
            self.assertEqual(os.listdir(self.dir), [])
            self.assertEqual(alive_in(group), [])


class CompanionTest(OverheadCase):
    def test_both(self):
        report, modes = self.modes("--rounds", "1")
        self.assertIsNone(report["companion_left_out"])
        self.assertEqual(list(modes), ["bare", "shim", "both"])
        self.assertGreater(modes["both"]["switches"], 0)
        self.assertGreater(modes["both"]["companion_cpu_s"], 0)
        # The same program makes the same calls.
        self.assertEqual(modes["both"]["calls"], modes["shim"]["calls"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "shim", "cudart"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
