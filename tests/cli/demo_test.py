#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero demo`: a planted cause is recorded, explained and set beside what was
found. Whether the right cause is found is the truth suite's to judge
(tests/truth); here: what is printed is what was planted and what was found.

  demo_test.py --ingero I DemoTest|CompanionTest
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None


class DemoCase(unittest.TestCase):
    def setUp(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("a demo needs 2 CPUs")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ingero-demo-test-",
                                                 dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env["TMPDIR"] = str(self.dir)

    def ingero(self, *args, status=0, ingero=None, before=None, **env):
        done = subprocess.run([ingero or OPTIONS.ingero, *map(str, args)],
                              preexec_fn=before,
                              env={**self.env, **env}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=240)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def scenarios(self):
        return [line.split()[0]
                for line in self.ingero("demo", "--list").stdout.splitlines()]

    def demo(self, *args, **env):
        """What it printed, what was planted, and what explain says of it."""
        done = self.ingero("demo", "--keep", *args, **env)
        (folder,) = self.dir.glob("ingero-demo.*")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        planted = json.loads((folder / "planted.json").read_text())
        (store,) = folder.glob("*.store")
        report = json.loads(self.ingero("explain", "--json", "--db",
                                        store).stdout)
        text = " ".join(done.stdout.split())
        # Both halves are there, and the verdict on them is the one that
        # follows from the data.
        self.assertIn("Verdict", text)
        first = [f for f in report["findings"]
                 if f["pid"] in (planted["pid"], 0)
                 and f["severity"].lower() in ("high", "medium")]
        found = first[0]["cause"] if first else ""
        self.assertIn(f"found {found}" if found else "found no cause", text)
        same = found in [planted["cause"],
                         *[a for a in planted["accepted"].split() if a]]
        said = text[text.index(" so ") + 4:]
        if not same:
            self.assertTrue(said.startswith("not the same."), said)
        elif not found:
            self.assertTrue(said.startswith("the same: none."), said)
        else:  # how much of it, in numbers
            self.assertTrue(said.startswith("the same cause: "), said)
            share = first[0]["lost_ns"] / planted["cause_lost_ns"]
            told = re.match(r"the same cause: [^()]* of the [^()]* planted were "
                            r"found \((>|<)?([\d.]+) %\)", said)
            self.assertAlmostEqual(float(told[2]) / 100, share, delta=0.011)
        seconds = (planted["end_ns"] - planted["begin_ns"]) / 1e9
        self.assertIn(f" of {seconds:.3g} s", text)
        self.assertIn(str(store), text)
        return text, planted, report


class DemoTest(DemoCase):
    """Without the kernel side, which needs root."""

    def test_a_folder_that_cannot_be_used(self):
        done = self.ingero("demo", "--cuda-only", "--dir", "/proc/x", status=1)
        self.assertIn("/proc/x", done.stderr)
        self.assertNotIn("simulated program ended", done.stderr)

    def test_every_scenario_is_one_of_the_simulator(self):
        simulator = pathlib.Path(OPTIONS.ingero).parent / "starve_sim"
        presets = subprocess.run([simulator, "--list"], check=True, text=True,
                                 capture_output=True).stdout.split()
        names = self.scenarios()
        self.assertGreater(len(names), 5)
        self.assertLessEqual(set(names), set(presets))

    def test_a_healthy_one(self):
        # A real CUDA that the user's environment names is not taken.
        (self.dir / "libcudart.so.13").write_text("no library")
        text, planted, report = self.demo("--cuda-only", "healthy",
                                          LD_LIBRARY_PATH=str(self.dir))
        self.assertEqual(planted["cause"], "")
        self.assertIn("planted no cause", text)
        feeding = [f for f in report["feeding"]
                   if f["process"]["pid"] == planted["pid"]]
        self.assertTrue(feeding)

    def test_what_needs_the_kernel_side_is_said_to(self):
        text, planted, report = self.demo("--cuda-only")
        self.assertEqual(planted["cause"], "loader-cpu-bound")
        self.assertIn("planted one loader process", text)
        self.assertTrue(report["trace"]["missing"])
        if "so not the same." in text:
            self.assertIn("Not everything was recorded", text)

    def test_a_folder_of_ones_own(self):
        own = self.dir / "own"
        self.ingero("demo", "--cuda-only", "healthy", "--dir", own)
        self.assertTrue((own / "planted.json").exists())
        self.assertFalse(list(self.dir.glob("ingero-demo.*")))
        # The newest there, for all other commands.
        done = self.ingero("explain", "--json", INGERO_DIR=str(own))
        self.assertTrue(json.loads(done.stdout)["feeding"])

    def test_it_leaves_nothing_behind(self):
        done = self.ingero("demo", "--cuda-only", "healthy")
        self.assertEqual(os.listdir(self.dir), [])
        self.assertIn("ingero demo --keep healthy", done.stdout)
        self.assertNotIn(str(self.dir), done.stdout.split("Planted")[1])

    def test_usage(self):
        for args, says in ((["helthy"], "did you mean 'healthy'?"),
                           (["nothing-alike"], "'ingero demo --list'"),
                           (["--cuda-olny"], "--cuda-only"),
                           (["healthy", "lock-held"], "lock-held")):
            done = self.ingero("demo", *args, status=2)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
        done = self.ingero("demo", status=1, TMPDIR="/proc/none")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("/proc/none", done.stderr)
        one = {min(os.sched_getaffinity(0))}
        done = self.ingero("demo", status=1,
                           before=lambda: os.sched_setaffinity(0, one))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("on 2 CPUs or more", done.stderr)
        alone = shutil.copy(OPTIONS.ingero, self.dir)
        done = self.ingero("demo", status=1, ingero=alone)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("install it again", done.stderr)

    def of_this_demo(self):
        """Names of processes that were started with our TMPDIR."""
        names = []
        mark = f"TMPDIR={self.dir}\0".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    environ = f.read()
                with open(f"/proc/{pid}/comm") as f:
                    name = f.read().strip()
            except OSError:  # has ended, or is not ours
                continue
            if mark in environ:
                names.append(name)
        return names

    def wait_for(self, what):
        deadline = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_interrupted_it_leaves_no_process(self):
        for end in signal.SIGINT, signal.SIGKILL:
            p = subprocess.Popen([OPTIONS.ingero, "demo", "--cuda-only",
                                  "cpu-other-process"], env=self.env,
                                 stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            self.wait_for(lambda: p.poll() is not None or
                          any(n.startswith("cpu_hog_")
                              for n in self.of_this_demo()))
            p.send_signal(end)
            err = p.communicate(timeout=120)[1].decode()
            # Over before the signal came: nothing to see here, nor left.
            self.assertIn(p.returncode, (0, 128 + end, -end))
            if end == signal.SIGINT:
                self.assertEqual(os.listdir(self.dir), [])
                if p.returncode != 0:
                    self.assertIn("stopped; nothing is left behind", err)
                    self.assertNotIn("exit status", err)
            self.wait_for(lambda: not self.of_this_demo())


class CompanionTest(DemoCase):
    def test_stopped_while_the_companion_starts(self):
        """Which must not make the folder again that was removed."""
        for tens in range(1, 31, 3):
            p = subprocess.Popen([OPTIONS.ingero, "demo"], env=self.env,
                                 stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
            time.sleep(tens / 100)
            p.send_signal(signal.SIGINT)
            err = p.communicate(timeout=120)[1]
            self.assertNotEqual(p.returncode, 0, err)
            while self.who_names(str(self.dir)):
                time.sleep(0.01)
            self.assertEqual(list(self.dir.glob("ingero-demo.*")), [], err)

    def who_names(self, path):
        """Processes with it in their command line."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:
                continue
            if path in line:
                found.append(pid)
        return found

    def test_both_sides(self):
        text, planted, report = self.demo()
        (folder,) = self.dir.glob("ingero-demo.*")
        self.assertEqual(len(list(folder.glob("kernel-*"))), 1)
        self.assertNotIn("Not everything was recorded", text)
        self.assertIn("for this.", text)
        pids = {p["pid"] for p in report["processes"]}
        self.assertLessEqual({planted["pid"], planted["workers"][0]["pid"]},
                             pids)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "CompanionTest")


if __name__ == "__main__":
    main()
