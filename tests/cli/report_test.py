#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero report`: one file that needs nothing else, says what `ingero explain`
says, and in a browser shows the cause of a starved interval that one zooms to.

  report_test.py --ingero I --store FOLDER [DataTest] [BrowserTest]

BrowserTest ends with 77 where no Chromium is in PATH.
"""
import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
SKIP = 77
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser",
            "google-chrome")


def ingero(*args, status=0):
    done = subprocess.run([OPTIONS.ingero, *args], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done


class ReportCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ingero-report-")
        cls.path = os.path.join(cls.folder, "report.html")
        done = ingero("report", "--db", OPTIONS.store, "-o", cls.path)
        assert done.stdout == "", done
        assert re.fullmatch(rf"ingero report: wrote {re.escape(cls.path)} "
                            r"\([\d.]+ MiB\)\n", done.stderr), done
        with open(cls.path, encoding="utf-8") as f:
            cls.page = f.read()
        cls.text = re.search(r'<script id="data" type="application/json">(.*?)'
                             r"</script>", cls.page, re.S)[1]
        cls.data = json.loads(cls.text)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def query(self, sql):
        out = ingero("query", "--db", OPTIONS.store, "--format", "jsonl", sql)
        return [list(json.loads(x).values()) for x in out.stdout.splitlines()]

    def shares(self, row):
        """[[share by state] by bucket]"""
        raw, n = base64.b64decode(row["shares"]), len(row["states"])
        self.assertEqual(len(raw), n * row["buckets"])
        return [[x / 255 for x in raw[i:i + n]] for i in range(0, len(raw), n)]

    def sums(self, row):
        """{state: ns}"""
        bucket = self.data["length_ns"] / row["buckets"]
        totals = [sum(column) * bucket for column in zip(*self.shares(row))]
        return dict(zip(row["states"], totals))


class DataTest(ReportCase):
    def test_it_needs_nothing_else(self):
        self.assertEqual(os.listdir(self.folder), ["report.html"])
        self.assertLess(len(self.page), 5_000_000)
        self.assertNotIn("<", self.text)
        self.assertFalse(re.findall(r"\s(?:src|href)\s*=", self.page))
        self.assertNotRegex(self.page, r"url\(|@import|\bimport\(|fetch\(")
        self.assertIn("default-src 'none'", self.page)
        self.assertNotIn("__INGERO", self.page)

    def test_it_says_what_explain_says(self):
        report = json.loads(ingero("explain", "--db", OPTIONS.store,
                                   "--json").stdout)
        self.assertEqual(self.data["verdict"], report["verdict"])
        self.assertEqual([(f["cause"], f["claim"], f["lost_ns"])
                          for f in self.data["findings"]],
                         [(f["cause"], f["claim"], f["lost_ns"])
                          for f in report["findings"]])
        self.assertEqual([(o["name"], o["count"])
                          for o in self.data["operations"]],
                         [(o["name"], o["count"])
                          for o in report["operations"]][:200])

    def test_the_timeline_adds_up(self):
        length = self.data["length_ns"]
        rows = [r for r in self.data["rows"] if r["group"] == "feeding"]
        self.assertTrue(rows)
        found = {}
        for row in rows:
            for state, ns in self.sums(row).items():
                found[state] = found.get(state, 0) + ns
        stored = dict(map(tuple, self.query(
            "SELECT state, sum(ns) FROM feed GROUP BY state")))
        for state, ns in stored.items():
            self.assertAlmostEqual(found[state], ns, delta=0.005 * length,
                                   msg=state)
        for row in rows:
            for bucket in self.shares(row):
                self.assertLess(sum(bucket), 1.02)
        causes = {}
        for row in self.data["rows"]:
            if row["group"] == "cause":
                known, maybe = self.sums(row).values()
                causes[row["states"][0]] = known
        for f in self.data["findings"]:
            if f["cause"] in causes and f["lost_ns"] > 0.01 * length:
                self.assertAlmostEqual(causes[f["cause"]], f["lost_ns"],
                                       delta=0.01 * length, msg=f["cause"])
        threads = [r for r in self.data["rows"] if r["group"] == "thread"]
        self.assertTrue(threads)
        for row in threads:
            for bucket in self.shares(row):
                self.assertLess(sum(bucket), 1.03)
        for series in self.data["series"]:
            self.assertEqual(len(series["t_ns"]), len(series["values"]))
            self.assertEqual(series["t_ns"], sorted(series["t_ns"]))

    def test_numbered_rows_are_in_the_order_of_their_numbers(self):
        series = {}
        for s in self.data["series"]:
            series.setdefault(re.sub(r"\d+", "#", s["name"]), []).append(
                [int(n) for n in re.findall(r"\d+", s["name"])])
        # Of 16 CPUs; by their texts 10 would come before 2.
        self.assertTrue(any(len(n) > 3 for n in series.values()), series)
        for numbers in series.values():
            self.assertEqual(numbers, sorted(numbers))

    def test_a_part(self):
        path = os.path.join(self.folder, "part.html")
        ingero("report", "--db", OPTIONS.store, "--since", "1s", "-o", path)
        with open(path, encoding="utf-8") as f:
            self.assertIn('"length_ns":1000000000,', f.read())
        os.unlink(path)

    def test_wrong_usage_is_one_line(self):
        for args, status, says in (([], 2, "-o report.html"),
                                   (["-o"], 2, "-o"),
                                   (["-o", "x", "--since", "x"], 2, "60s"),
                                   (["-o", "/nowhere/x"], 1, "/nowhere"),
                                   (["-o", "x", "--db", "/nowhere"], 1,
                                    "/nowhere")):
            done = ingero("report", "--db", OPTIONS.store, *args,
                          status=status) if "--db" not in args else \
                ingero("report", *args, status=status)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)


class BrowserTest(ReportCase):
    def dom(self, fragment="", *more):
        profile = os.path.join(self.folder, "profile")
        done = subprocess.run(
            [OPTIONS.browser, "--headless", "--no-sandbox", "--disable-gpu",
             "--enable-logging=stderr", "--user-data-dir=" + profile,
             "--virtual-time-budget=20000", "--window-size=1280,1600",
             *(more or ["--dump-dom"]), f"file://{self.path}{fragment}"],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertNotRegex(done.stderr, r"Uncaught|Refused to|SyntaxError")
        return done.stdout

    def part(self, dom, name):
        return html.unescape(re.sub(r"<[^>]+>", "", re.search(
            rf'<div id="{name}"[^>]*>(.*?)</div>', dom, re.S)[1]))

    def test_it_draws(self):
        dom = self.dom()
        self.assertEqual(self.part(dom, "verdict"), self.data["verdict"])
        for f in self.data["findings"]:
            self.assertIn(html.escape(f["cause"]), dom)
        self.assertEqual(dom.count("<tr>"),
                         2 + len(self.data["operations"]) +
                         len(self.data["processes"]))
        # One colour, one meaning.
        colors = {}
        for color, name in re.findall(
                r'<span class="key"><span class="swatch" style="background: '
                r'([^;"]+);"></span>([^<]+)</span>', dom):
            meaning = re.sub("^(GPU|thread|starved:) ", "", name)
            self.assertEqual(colors.setdefault(color, meaning), meaning)
        self.assertGreater(len(colors), 8)
        picture = os.path.join(self.folder, "picture.png")
        self.dom("", "--screenshot=" + picture)
        # An empty page of that size is 12 kB.
        self.assertGreater(os.path.getsize(picture), 30_000)
        os.unlink(picture)

    def test_zooming_into_a_starved_interval_tells_its_cause(self):
        tried = 0
        for row in self.data["rows"]:
            if row["group"] != "cause":
                continue
            cause = row["states"][0]
            shares = [b[0] for b in self.shares(row)]
            best = max(range(len(shares)), key=shares.__getitem__)
            if shares[best] < 0.1:
                continue
            bucket = self.data["length_ns"] / row["buckets"] / 1e9
            at = (best + 0.5) * bucket
            dom = self.dom(f"#from={at - 5 * bucket}&to={at + 5 * bucket}"
                           f"&at={at}")
            self.assertIn(cause + " ", self.part(dom, "at"))
            # And elsewhere it is not said.
            quiet = [i for i in range(1, len(shares) - 1)
                     if not any(shares[i - 1:i + 2])]
            if quiet:
                at = (quiet[0] + 0.5) * bucket
                dom = self.dom(f"#from={at - bucket}&to={at + bucket}&at={at}")
                self.assertNotRegex(self.part(dom, "at"),
                                    rf"(?<!maybe ){re.escape(cause)} \d")
            tried += 1
            if tried == 3:
                break
        self.assertGreater(tried, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if "BrowserTest" in rest and OPTIONS.browser is None:
        print("SKIP: no Chromium (apt install chromium-headless-shell)")
        sys.exit(SKIP)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
