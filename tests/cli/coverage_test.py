#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Zero events never pass without a reason: programs that use CUDA and are not
recorded, each in its own way, are named with the reason.

  coverage_test.py --ingero I [--kprobe K] --shim S --client C --lib DIR
      RecordedTest|UnrecordedTest
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None


class CoverageTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-coverage-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.trace = os.path.join(self.dir, "trace")
        self.started = []
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=self.trace, INGERO_DIR_ONLY="1")

    def tearDown(self):
        for p in self.started:
            p.kill()
            p.wait()
            for pipe in (p.stdin, p.stdout, p.stderr):
                if pipe:
                    pipe.close()

    def ingero(self, *args, check=0):
        done = subprocess.run([OPTIONS.ingero, *args], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, check, done.stderr)
        return done

    def start(self, command, **env):
        """Runs it until it says "ready"."""
        p = subprocess.Popen(command, env={**self.env, **env}, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.started.append(p)
        self.assertEqual(p.stdout.readline(), "ready\n", command)
        return p

    def companion(self):
        ready = os.path.join(self.dir, "ready")
        p = subprocess.Popen([OPTIONS.kprobe, "--dir", self.trace,
                              "--ready-file", ready], env=self.env,
                             stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        while not os.path.exists(ready):
            if p.poll() is not None:
                self.fail(p.stderr.read())
            time.sleep(0.01)
        return p

    def end(self, p, signal=None):
        if signal:
            p.send_signal(signal)
        else:
            p.stdin.close()
        out = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, out)


class RecordedTest(CoverageTest):
    def test_an_empty_folder_says_what_to_check(self):
        os.mkdir(self.trace)
        done = self.ingero("merge", "--dir", self.trace, check=1)
        self.assertEqual(done.stderr.count("\n"), 1)
        for word in ("LD_PRELOAD", "setuid", "static"):
            self.assertIn(word, done.stderr)

    def test_coverage_of_a_recorded_program(self):
        driver = f"{OPTIONS.lib}/driver/libcuda.so.1"
        subprocess.run([OPTIONS.client, "driver", driver], check=True,
                       env={**self.env, "LD_PRELOAD": OPTIONS.shim},
                       stdout=subprocess.PIPE)
        self.ingero("merge")
        out = json.loads(self.ingero("stats", "--coverage", "--json").stdout)
        found, = out["coverage"]
        self.assertTrue(found["recorded"])
        self.assertEqual(found["calls"], 2)
        self.assertEqual([(e["name"], e["by_design"])
                          for e in found["escaped"]], [("cuBrandNew", False)])
        ways = {w["way"]: w["functions"] for w in found["ways"]}
        self.assertEqual(ways["cuGetProcAddress"], ["cuInit"])
        self.assertEqual(ways["dlsym"], ["cuGetProcAddress_v2"])
        self.assertEqual([os.path.basename(p) for p in
                          found["static_runtimes"]], ["cover_client"])
        self.assertEqual(found["libraries"][0]["version"], "1")
        line = " ".join(self.ingero("explain").stdout.split())
        self.assertIn("driver calls of cover_client/", line)
        self.assertIn("static in cover_client", line)
        self.assertIn("1 function handed out unwrapped: cuBrandNew", line)
        text = self.ingero("stats", "--coverage").stdout
        self.assertIn("cuBrandNew: not known to ingero", text)
        # And the plain table.
        out = json.loads(self.ingero("stats", "--json").stdout)
        self.assertEqual([(o["name"], o["layer"], o["first_uses"])
                          for o in out["operations"]
                          if o["name"] == "cuInit"],
                         [("cuInit", "driver", 1)])
        self.assertIn("cuInit", self.ingero("stats").stdout)


    def test_nvtx_ranges_are_counted_by_name(self):
        client = os.path.join(os.path.dirname(OPTIONS.client),
                              "nvtx_client_stand_in")
        subprocess.run([client], check=True, stdout=subprocess.PIPE,
                       env={**self.env, "LD_PRELOAD": OPTIONS.shim,
                            "NVTX_INJECTION64_PATH": OPTIONS.shim})
        self.ingero("merge")
        ranges = json.loads(self.ingero("stats", "--json").stdout)["nvtx"]
        found = {(r["domain"], r["name"], r["kind"]): r for r in ranges}
        step = found["", "step", "range"]
        self.assertEqual(step["count"], 10)
        self.assertLessEqual(step["p50_ns"], step["max_ns"])
        self.assertLessEqual(step["max_ns"], step["total_ns"])
        self.assertIn(("my library", "solve", "range"), found)
        self.assertIn(("", "now", "mark"), found)
        self.assertIn("my library: solve", self.ingero("stats").stdout)
        store, = (os.path.join(self.trace, f) for f in os.listdir(self.trace)
                  if f.endswith(".store"))
        rows = self.ingero("dump", store, "--table", "nvtx").stdout
        self.assertEqual(rows.count("|step"), 10)

    def test_nvtx_ranges_of_a_killed_process_are_open(self):
        client = os.path.join(os.path.dirname(OPTIONS.client),
                              "nvtx_client_stand_in")
        done = subprocess.run([client, "killed"],
                              env={**self.env, "LD_PRELOAD": OPTIONS.shim,
                                   "NVTX_INJECTION64_PATH": OPTIONS.shim})
        self.assertEqual(done.returncode, -9)
        streams = [os.path.join(self.trace, f) for f in os.listdir(self.trace)]
        self.ingero("merge")
        ranges = json.loads(self.ingero("stats", "--json").stdout)["nvtx"]
        found = {(r["name"], r["open"]): r["count"] for r in ranges}
        self.assertEqual(found, {
            ("early", False): 1, ("early mark", False): 1,
            ("early thread", False): 1, ("ended late", False): 1,
            ("step", False): 3, ("whole run", True): 1,
            ("started early", True): 1, ("epoch", True): 1, ("solve", True): 1,
            ("started late", True): 1, ("thread's", True): 1,
            ("child's early", True): 1, ("child's", True): 1})
        text = " ".join(self.ingero("stats", "--all").stdout.split())
        self.assertIn("whole run (open at the end) 1", text)
        self.assertIn("my library: solve (open at the end) 1", text)
        asked = self.ingero("query", "--format", "csv",
                            "SELECT name, SUM(open) FROM nvtx GROUP BY name")
        self.assertIn("step,0", asked.stdout)
        self.assertIn("whole run,1", asked.stdout)
        store, = (os.path.join(self.trace, f) for f in os.listdir(self.trace)
                  if f.endswith(".store"))
        rows = [json.loads(line) for line in
                self.ingero("dump", store, "--table", "nvtx", "--format",
                            "jsonl").stdout.splitlines()]
        ends = {row["text"].split("|")[-1]: (row["begin_ns"] +
                                             row["duration_ns"], row["open"])
                for row in rows}
        # As long as the process was seen: over all that ended in it.
        for name in ("whole run", "epoch", "started early"):
            self.assertEqual(ends[name][1], 1)
            self.assertGreaterEqual(ends[name][0], ends["step"][0])
        self.assertEqual(ends["step"][1], 0)
        rows = [json.loads(line) for stream in streams for line in
                self.ingero("dump", stream, "--table", "nvtx", "--format",
                            "jsonl").stdout.splitlines()]
        self.assertEqual({(row["name"], row.get("open", 0)) for row in rows},
                         set(found))
        self.assertTrue(all(("duration_ns" in row) != ("open" in row)
                            for row in rows))


class UnrecordedTest(CoverageTest):
    """With the companion."""

    def test_who_used_cuda_unseen_is_named_with_the_reason(self):
        driver = os.path.join(self.dir, "libcuda.so.1")
        shutil.copy(f"{OPTIONS.lib}/driver/libcuda.so.1", driver)
        client = os.path.join(self.dir, "setuid_client")
        shutil.copy(OPTIONS.client, client)
        os.chown(client, 65534, 65534)
        os.chmod(client, 0o4755)
        nosuid = os.statvfs(self.dir).f_flag & os.ST_NOSUID
        before = self.start([OPTIONS.client, "wait", driver])
        kprobe = self.companion()
        cleared = self.start([OPTIONS.client, "wait", driver])
        setuid = self.start([client, "wait", driver],
                            LD_PRELOAD=OPTIONS.shim)
        missing = self.start([OPTIONS.client, "wait", driver],
                             LD_PRELOAD="/nowhere/libingero_cuda.so")
        off = self.start([OPTIONS.client, "wait", driver],
                         LD_PRELOAD=OPTIONS.shim, INGERO_DISABLE="1")
        silent = self.start([OPTIONS.client, "wait", driver],
                            LD_PRELOAD=OPTIONS.shim)
        # The end of the recording looks at all that live.
        self.end(kprobe, 2)
        reasons = {
            before: "was not in its environment",
            cleared: "was not in its environment",
            missing: "the loader did not load it",
            off: "INGERO_DISABLE is set",
            silent: "no readable stream of it is here",
        }
        if not nosuid:
            reasons[setuid] = "raised privileges"
        self.ingero("merge")
        out = json.loads(self.ingero("stats", "--coverage", "--json").stdout)
        by_pid = {c["process"]["pid"]: c for c in out["coverage"]}
        for process, reason in reasons.items():
            self.assertIn(process.pid, by_pid, reason)
            found = by_pid[process.pid]
            self.assertFalse(found["recorded"])
            self.assertIn(reason, found["not_recorded"])
            self.assertEqual(found["libraries"][0]["path"], driver)
        text = self.ingero("stats", "--coverage").stdout
        self.assertIn(f"cover_client/{cleared.pid}", text)
        # With no call at all, explain and stats say why, too.
        text = " ".join(self.ingero("explain").stdout.split())
        self.assertIn("nothing of it was recorded", text)
        self.assertIn("no CUDA stream", text)
        text = " ".join(self.ingero("stats").stdout.split())
        self.assertIn("No CUDA call in this time.", text)
        self.assertIn("nothing of it was recorded", text)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for option in ("ingero", "shim", "client", "lib"):
        parser.add_argument("--" + option, required=True)
    parser.add_argument("--kprobe")
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "UnrecordedTest")


if __name__ == "__main__":
    main()
