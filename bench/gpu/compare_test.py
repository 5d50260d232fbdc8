#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py on simulated CUDA: every recorder that runs here has each call
that was made (compare.py fails otherwise), what cannot run says why, and the
plot has a bar for each that did. No time is looked at.

  compare_test.py --build DIR
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BUILD = None


def run(*arguments):
    return subprocess.run([sys.executable, HERE / "compare.py", *arguments],
                          capture_output=True, text=True, timeout=100)


class IntervalTest(unittest.TestCase):
    def test_ranges_hold_what_they_say(self):
        for n, k, probability in ((1, 1, 0), (2, 1, 0.5), (6, 1, 0.9688),
                                  (8, 1, 0.9922), (9, 2, 0.9609),
                                  (20, 6, 0.9586)):
            got = compare.interval(range(1, n + 1))
            self.assertEqual((got["low"], got["high"], got["probability"]),
                             (k, n + 1 - k, probability))

    def test_the_companion_is_compared_with_both_sides(self):
        m = compare.Measurement()
        m.add([[{"bare": 100, "shim": 110}], [{"bare": 200, "shim": 210}]],
              [{"bare": 150, "shim": 165}])
        self.assertEqual(m.added, {"shim": [10], "shim+companion": [15]})

    def test_goals(self):
        m = compare.Measurement()
        for ours, theirs, probe in ((10, 100, 300), (12, 120, 390)):
            m.put("shim", ours, 1.1)
            m.put("cupti-runtime", theirs, 2)
            m.put("uprobe", probe, 4)
        verdicts = [g["verdict"] for g in
                    compare.Comparison.goals("query", m)]
        self.assertEqual(verdicts, ["met", "missed"])
        m = compare.Measurement()
        m.put("shim", 1, 1.002)
        m.put("shim+companion", 1, 1.05)
        m.put("bare-again", 1, 0.98)
        verdicts = [g["verdict"] for g in
                    compare.Comparison.goals("train", m)]
        self.assertEqual(verdicts, ["met", "missed"])


class SimulatedTest(unittest.TestCase):
    def test_all_that_can_run_here(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = pathlib.Path(folder) / "figures.json"
            done = run("--build", BUILD, "--simulated", "--rounds", "1",
                       "--seconds", "0.1", "--block", "0.5", "--json", figures,
                       "--workloads", "launch,query")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(figures.read_text())
            self.assertEqual(list(result["workloads"]), ["launch", "query"])
            bars = 0
            for workload in result["workloads"].values():
                variants = workload["variants"]
                for name, row in variants.items():
                    self.assertNotEqual("skipped" in row, "added_ns" in row)
                    if name.startswith("cupti") or name == "nsys":
                        self.assertIn("GPU", row["skipped"])
                self.assertIn("every runtime call",
                              variants["shim"]["recorded"])
                bars += sum("added_ns" in r and r["added_ns"]["low"] > 0
                            for v, r in variants.items() if v != "bare-again")
            plot = subprocess.run(
                [sys.executable, HERE.parent / "plot_overhead.py", figures],
                capture_output=True, text=True)
            if bars:
                svg = xml.etree.ElementTree.fromstring(plot.stdout)
                drawn = svg.findall("{http://www.w3.org/2000/svg}rect")
                self.assertEqual(len(drawn), bars + 1)  # the background

    def test_what_is_missing_is_named(self):
        done = run("--build", "/nowhere", "--simulated")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nowhere/lib/libingero_cuda.so", done.stderr)
        done = run("--build", BUILD, "--workloads", "lanch")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("'lanch' is none of", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    options, rest = parser.parse_known_args()
    BUILD = options.build
    unittest.main(argv=[sys.argv[0], *rest])
