#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of the truth suite must be able to say no, and the suite must
start where the kernel refuses it a setting."""

import copy
import pathlib
import unittest

from run import judge, leave_favoured_autogroup

TRUTH = {
    "pid": 10, "cause": "loader-cpu-bound", "accepted": "",
    "culprit": "worker", "workers": [{"pid": 11}], "spinners": [],
    "lost_ns": 2_000_000_000, "cause_lost_ns": 2_000_000_000,
    "gpu_idle_ns": 2_050_000_000,
}
REPORT = {
    "feeding": [{"process": {"pid": 10}, "idle_at_least_ns": 2_050_000_000,
                 "idle_at_most_ns": 2_100_000_000,
                 "cold_start_ns": 20_000_000}],
    "findings": [{"cause": "loader-cpu-bound", "pid": 10, "severity": "high",
                  "lost_ns": 1_950_000_000, "culprits": [{"pid": 11}]}],
}
CONTROL = dict(TRUTH, cause="", accepted="gpu-bound", culprit="",
               lost_ns=10_000_000, cause_lost_ns=0, gpu_idle_ns=10_000_000)
CONTROL_REPORT = {
    "feeding": [{"process": {"pid": 10}, "idle_at_least_ns": 12_000_000,
                 "idle_at_most_ns": 50_000_000, "cold_start_ns": 0}],
    "findings": [{"cause": "gpu-bound", "pid": 10, "severity": "info",
                  "lost_ns": 0, "culprits": []}],
}

TWO = dict(TRUTH, cause_lost_ns=1_200_000_000,
           also={"cause": "idle-by-choice", "lost_ns": 800_000_000})
TWO_REPORT = dict(REPORT, findings=[
    dict(REPORT["findings"][0], lost_ns=1_210_000_000),
    {"cause": "idle-by-choice", "pid": 10, "severity": "medium",
     "lost_ns": 790_000_000, "culprits": []}])
FACT = dict(CONTROL, cause="worker-died", accepted="", kind="fact")
FACT_REPORT = dict(CONTROL_REPORT, findings=[
    dict(CONTROL_REPORT["findings"][0], cause="worker-died")])
POSSIBLE = dict(TRUTH, kind="possible", cause="launch-bound", culprit="")
POSSIBLE_REPORT = dict(REPORT, findings=[
    {"cause": "launch-bound", "pid": 10, "severity": "low", "lost_ns": 0,
     "lost_at_most_ns": 2_200_000_000, "culprits": []}])
LOW = dict(TRUTH, kind="low", cause="cold-start", culprit="")
LOW_REPORT = dict(REPORT, findings=[
    dict(REPORT["findings"][0], cause="cold-start", severity="low")])


def complaints(truth, report, change=None):
    report = copy.deepcopy(report)
    if change:
        change(report)
    return judge(truth, report)[1]


class SettingTest(unittest.TestCase):
    def test_an_autogroup_that_refuses_is_left(self):
        # Of clear_refs 0 is refused with EINVAL, as the root autogroup does.
        refuses = pathlib.Path("/proc/self/clear_refs")
        if refuses.exists():
            with self.assertRaises(OSError):
                refuses.write_text("0")
            leave_favoured_autogroup(refuses)
        leave_favoured_autogroup(pathlib.Path("/proc/self/not-there"))


class JudgeTest(unittest.TestCase):
    def test_right_answers_pass(self):
        self.assertEqual(complaints(TRUTH, REPORT), [])
        self.assertEqual(complaints(CONTROL, CONTROL_REPORT), [])

    def test_wrong_answers_fail(self):
        def first(key, value):
            def change(report):
                report["findings"][0][key] = value
            return change

        def feed(key, value):
            def change(report):
                report["feeding"][0][key] = value
            return change
        for change in (first("cause", "host-bound"),
                       first("severity", "low"),
                       first("lost_ns", 1_500_000_000),
                       first("lost_ns", 2_500_000_000),
                       first("culprits", []),
                       first("culprits", [{"pid": 99}]),
                       first("pid", 99),
                       feed("idle_at_least_ns", 1_000_000_000),
                       feed("idle_at_least_ns", 3_000_000_000),
                       # Within 10 % of what was lost, yet more than was idle.
                       feed("idle_at_least_ns", 2_150_000_000),
                       feed("idle_at_most_ns", 1_000_000_000),
                       lambda r: r["feeding"].clear(),
                       lambda r: r["findings"].clear()):
            self.assertNotEqual(complaints(TRUTH, REPORT, change), [])

    def test_two_causes(self):
        self.assertEqual(complaints(TWO, TWO_REPORT), [])
        # Either may come first.
        self.assertEqual(complaints(dict(TWO, culprit=""), TWO_REPORT,
                                    lambda r: r["findings"].reverse()), [])
        for at, key, value in ((1, "cause", "host-bound"),
                               (1, "lost_ns", 400_000_000),
                               (0, "lost_ns", 400_000_000),
                               (0, "cause", "host-bound")):
            def change(report):
                report["findings"][at][key] = value
            self.assertNotEqual(complaints(TWO, TWO_REPORT, change), [])

    def test_facts_low_and_possible_losses(self):
        for truth, report in ((FACT, FACT_REPORT), (LOW, LOW_REPORT),
                              (POSSIBLE, POSSIBLE_REPORT)):
            self.assertEqual(complaints(truth, report), [])
            for key, value in (("cause", "host-bound"), ("severity", "none")):
                def change(r):
                    r["findings"][0][key] = value
                    if value == "none":
                        r["findings"].clear()
                self.assertNotEqual(complaints(truth, report, change), [])

            def another(r):
                r["findings"].append({"cause": "lock-held", "pid": 10,
                                      "severity": "high", "lost_ns": 1,
                                      "lost_at_most_ns": 1, "culprits": []})
            self.assertNotEqual(complaints(truth, report, another), [])

        def little(r):
            r["findings"][0]["lost_at_most_ns"] = 100_000_000
        self.assertNotEqual(complaints(POSSIBLE, POSSIBLE_REPORT, little), [])

    def test_alarms_on_a_control_fail(self):
        def alarm(report):
            report["findings"][0].update(cause="cpu-other-process",
                                         severity="medium")
        self.assertNotEqual(complaints(CONTROL, CONTROL_REPORT, alarm), [])

        def too_idle(report):
            report["feeding"][0]["idle_at_least_ns"] = 500_000_000
        self.assertNotEqual(complaints(CONTROL, CONTROL_REPORT, too_idle), [])


if __name__ == "__main__":
    unittest.main()
