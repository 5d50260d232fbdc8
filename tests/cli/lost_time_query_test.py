#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each finding on the kept recording prints a query, and what that adds up to
is the time that the finding lost.

  lost_time_query_test.py INGERO STORE
"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "truth"))
from run import recompute  # noqa: E402

INGERO, STORE = sys.argv[1:3]


class Ingero:
    @staticmethod
    def ingero(*args):
        return subprocess.run([INGERO, *args], check=True, text=True,
                              stdout=subprocess.PIPE).stdout


class LostTimeQueryTest(unittest.TestCase):
    def explain(self, *args):
        return json.loads(Ingero.ingero("explain", "--json", "--db", STORE,
                                        *args))

    def test_each_finding_can_be_recomputed(self):
        report = self.explain()
        lost = [f for f in report["findings"] if f["lost_ns"]]
        self.assertGreater(len(lost), 2)
        self.assertEqual(recompute(Ingero, report), ([], len(lost)))

    def test_a_wrong_figure_is_told(self):
        report = self.explain()
        report["findings"][0]["lost_ns"] += 1_000_000
        complaints, _ = recompute(Ingero, report)
        self.assertEqual(len(complaints), 1)

    def test_of_a_part_no_query_is_printed_that_adds_up_the_whole(self):
        report = self.explain("--from", "20s", "--to", "40s")
        self.assertEqual(recompute(Ingero, report), ([], 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
