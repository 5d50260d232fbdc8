#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero query`: formats that programs read, and errors of one line.

  query_test.py --ingero I --store FOLDER
"""
import argparse
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import unittest

OPTIONS = None
ENDLESS = ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
           "SELECT count(*) FROM c")


class QueryTest(unittest.TestCase):
    def query(self, *args, status=0, **kwargs):
        done = subprocess.run([OPTIONS.ingero, "query", "--db", OPTIONS.store,
                               *args], text=True, capture_output=True,
                              timeout=60, **kwargs)
        self.assertEqual(done.returncode, status, done.stderr)
        if status:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("ingero query: "))
        return done.stdout

    def test_formats_say_the_same(self):
        sql = ("SELECT name, calls, p99_ns, wall_share FROM operations "
               "ORDER BY total_ns DESC LIMIT 20")
        rows = list(csv.DictReader(io.StringIO(
            self.query("--format", "csv", sql))))
        objects = [json.loads(line) for line in
                   self.query("--format", "jsonl", sql).splitlines()]
        self.assertEqual(len(rows), 20)
        for row, one in zip(rows, objects):
            self.assertEqual(list(row), list(one))
            for key, value in one.items():
                self.assertEqual(type(value)(row[key]), value)
        table = self.query(sql).splitlines()
        self.assertEqual(len(table), 21)
        self.assertEqual([line.split()[:2] for line in table[1:]],
                         [[r["name"], r["calls"]] for r in rows])

    def test_texts_are_quoted(self):
        sql = "SELECT 'a,\"b\"' || char(10) || 'c' AS x, NULL AS y, char(27) AS z"
        row, = csv.reader(io.StringIO(
            self.query("--format", "csv", sql).split("\n", 1)[1]))
        self.assertEqual(row, ['a,"b"\nc', "", "\x1b"])
        self.assertEqual(json.loads(self.query("--format", "jsonl", sql)),
                         {"x": 'a,"b"\nc', "y": None, "z": "\x1b"})
        self.assertNotIn("\x1b", self.query(sql))  # a terminal may read it

    def test_long_answers_are_cut_for_people_only(self):
        done = subprocess.run([OPTIONS.ingero, "query", "--db", OPTIONS.store,
                               "SELECT at_s FROM calls"], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.stdout.count("\n"), 1001)
        self.assertIn("only the first 1,000 rows", done.stderr)
        self.assertEqual(self.query("--format", "csv", "SELECT at_s FROM calls")
                         .count("\n"), 21761)

    def test_from_stdin(self):
        self.assertEqual(self.query("-", input="SELECT 42;\n").split(),
                         ["42", "42"])

    def test_schema(self):
        self.assertIn("context switches of all CPUs", self.query("--schema"))
        self.assertIn("ns on CLOCK_MONOTONIC", self.query("--schema", "calls"))
        self.assertIn("SELECT", self.query("--schema", "gpu"))
        self.query("--schema", "none", status=2)

    def test_mistakes(self):
        self.query(status=2)
        self.query("--format", "xml", "SELECT 1", status=2)
        self.query("SELECT nope FROM calls", status=2)
        self.query("DELETE FROM calls", status=2)
        done = subprocess.run([OPTIONS.ingero, "query", "--db", "/none",
                               "SELECT 1"], text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_ctrl_c_ends_it(self):
        asking = subprocess.Popen([OPTIONS.ingero, "query", "--db",
                                   OPTIONS.store, ENDLESS], text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        # Until it works on the answer: before, it is ended as well, but with
        # another status. CPU time tells: it takes a tenth of this to begin.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open(f"/proc/{asking.pid}/stat") as f:
                user, system = f.read().rsplit(")", 1)[1].split()[11:13]
            if (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") > 0.3:
                break
            time.sleep(0.01)
        asking.send_signal(signal.SIGINT)
        out, err = asking.communicate(timeout=30)
        self.assertEqual((asking.returncode, out, err),
                         (130, "", "ingero query: interrupted\n"))

    def test_output_that_goes_nowhere(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([OPTIONS.ingero, "query", "--db",
                                   OPTIONS.store, "--format", "csv",
                                   "SELECT * FROM calls"], stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
