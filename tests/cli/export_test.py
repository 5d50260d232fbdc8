#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero export` and python/ingero/arrow.py: what DuckDB reads is what `ingero
query` says, table by table and column by column.

  export_test.py --ingero I --store FOLDER --packages FOLDER

Installs pyarrow and duckdb into --packages; where they can't be had, it says so
and ends with 77.
"""
import argparse
import glob
import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

PACKAGES = ["pyarrow", "duckdb"]
OPTIONS = None


def get_packages(folder):
    sys.path.insert(0, folder)
    try:
        import duckdb, pyarrow  # noqa: F401, E401
        return ""
    except ImportError:
        pass
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet",
                           "--disable-pip-version-check", "--target", folder,
                           *PACKAGES], capture_output=True, text=True)
    if done.returncode != 0:
        return "pip could not install it: " + done.stderr.strip()[-200:]
    importlib.invalidate_caches()
    try:
        import duckdb, pyarrow  # noqa: F401, E401
    except ImportError as e:
        return f"it was installed but cannot be imported: {e}"
    return ""


def run(*args, python_path="", status=0):
    env = dict(os.environ, PYTHONPATH=python_path or OPTIONS.packages)
    done = subprocess.run([OPTIONS.ingero, *args], capture_output=True,
                          text=True, env=env, timeout=300)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done


def ask(sql):
    return [json.loads(line) for line in
            run("query", "--db", OPTIONS.store, "--format", "jsonl",
                sql).stdout.splitlines()]


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.lake = os.path.join(cls.folder.name, "lake")
        run("export", "--db", OPTIONS.store, "-o", cls.lake)
        cls.tables = [t for t in map(json.loads, run(
            "query", "--db", OPTIONS.store, "--schema", "--format",
            "jsonl").stdout.splitlines()) if t["kind"] == "table"]
        cls.info = json.loads(run("store", "info", OPTIONS.store,
                                  "--json").stdout)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_duckdb_reads_what_query_says(self):
        import duckdb
        compared = 0
        for table in self.tables:
            name = table["name"]
            rows = ask(f"SELECT count(*) AS n FROM {name}")[0]["n"]
            files = glob.glob(f"{self.lake}/{name}/*/*/*.parquet")
            self.assertEqual(bool(files), rows > 0, name)
            if not rows:
                continue
            # The same of each column on both sides.
            parts = ["count(*)"]
            for c in table["columns"]:
                column = f'"{c["name"]}"'
                parts.append(f"count({column})")
                if c["type"] == "integer":
                    parts += [f"sum({column} % 1000003)", f"min({column})",
                              f"max({column})"]
                elif c["type"] == "real":
                    parts += [f"sum({column})"]
                else:
                    parts += [f"sum(length({column}))",
                              f"count(DISTINCT {column})", f"min({column})"]
            asked = ", ".join(f"{p} AS c{i}" for i, p in enumerate(parts))
            ours = ask(f"SELECT {asked} FROM {name}")[0]
            theirs = duckdb.execute(
                f"SELECT {asked} FROM read_parquet('{self.lake}/{name}/*/*/"
                "*.parquet', hive_partitioning = true)").fetchone()
            for part, a, b in zip(parts, ours.values(), theirs):
                if isinstance(a, float):
                    self.assertAlmostEqual(a, float(b), delta=1e-6 * abs(a) +
                                           1e-9, msg=(name, part))
                else:
                    self.assertEqual(a, b, (name, part))
                compared += 1
        self.assertGreater(compared, 300)

    def test_every_row_group_says_whose_it_is_and_when(self):
        import duckdb
        import pyarrow.parquet as pq
        span = self.info["span"]
        groups = 0
        for path in glob.glob(f"{self.lake}/*/*/*/*.parquet"):
            file = pq.ParquetFile(path)
            meta = file.schema_arrow.metadata
            self.assertEqual(meta[b"ingero.host"].decode(), self.info["host"])
            self.assertEqual(int(meta[b"ingero.mono_to_real_ns"]),
                             span["begin_real_ns"] - span["begin_ns"])
            names = file.schema_arrow.names
            for g in range(file.num_row_groups):
                group = file.metadata.row_group(g)
                groups += 1
                for name, value in (
                        ("host", self.info["host"]),
                        ("boot_id", self.info["boot_id"]),
                        ("mono_to_real_ns",
                         span["begin_real_ns"] - span["begin_ns"])):
                    told = group.column(names.index(name)).statistics
                    self.assertEqual((told.min, told.max), (value, value), path)
        self.assertGreater(groups, 15)
        # The wall clock's time of a row, and the hour that its folder names.
        wrong, = duckdb.execute(
            "SELECT count(*) FROM read_parquet("
            f"'{self.lake}/switches/*/*/*.parquet', hive_partitioning = true) "
            "WHERE epoch_ns(time) != t_ns + mono_to_real_ns OR "
            "strftime(time AT TIME ZONE 'UTC', '%Y-%m-%dT%H') != "
            "CAST(hour AS VARCHAR)").fetchone()
        self.assertEqual(wrong, 0)

    def test_arrow_files(self):
        import pyarrow as pa
        folder = os.path.join(self.folder.name, "arrow")
        run("export", "--db", OPTIONS.store, "-o", folder, "--format", "arrow",
            "--tables", "calls,processes")
        self.assertEqual(sorted(os.listdir(folder)), ["calls", "processes"])
        path, = glob.glob(f"{folder}/calls/*/*/*.arrow")
        with pa.ipc.open_file(path) as file:
            table = file.read_all()
        said = ask("SELECT count(*) AS n, sum(duration_ns) AS t FROM calls")[0]
        self.assertEqual(table.num_rows, said["n"])
        self.assertEqual(sum(table["duration_ns"].to_pylist()), said["t"])

    def test_any_answer_as_arrow(self):
        module = os.path.join(os.path.dirname(OPTIONS.ingero),
                              "../share/ingero/python")
        sys.path.insert(0, module)
        from ingero import arrow
        table = arrow.table(
            OPTIONS.store, "SELECT name, calls, total_ns / 2.0 AS half, NULL AS "
            "none, iif(calls > 10, calls, NULL) AS many, calls IN (1, 2) AS "
            "few FROM operations ORDER BY total_ns DESC", OPTIONS.ingero)
        rows = ask("SELECT name, calls, total_ns / 2.0 AS half, NULL AS "
                   "none, iif(calls > 10, calls, NULL) AS many, calls IN "
                   "(1, 2) AS few FROM operations ORDER BY total_ns DESC")
        self.assertEqual(table.to_pylist(), rows)
        self.assertEqual(arrow.table(OPTIONS.store,
                                     "SELECT * FROM calls WHERE 0",
                                     OPTIONS.ingero).num_rows, 0)
        # More than one batch.
        batches = list(arrow.read(OPTIONS.store,
                                  "SELECT t_ns FROM switches UNION ALL "
                                  "SELECT t_ns FROM switches", OPTIONS.ingero))
        self.assertGreater(len(batches), 1)
        self.assertEqual(sum(b.num_rows for b in batches),
                         2 * ask("SELECT count(*) AS n FROM switches")[0]["n"])
        for sql, word in (("SELECT nope", "no such column"),
                          ("DELETE FROM calls", "may not be modified"),
                          ("SELECT 1 UNION ALL SELECT 'x'", "CAST")):
            with self.assertRaisesRegex(arrow.Error, word):
                arrow.table(OPTIONS.store, sql, OPTIONS.ingero)
        with self.assertRaisesRegex(arrow.Error, "no-such-store"):
            arrow.table("/no-such-store", "SELECT 1", OPTIONS.ingero)

    def test_hours_have_no_gap(self):
        module = os.path.join(os.path.dirname(OPTIONS.ingero),
                              "../share/ingero/python")
        sys.path.insert(0, module)
        from ingero import arrow
        hour = arrow.HOUR_NS
        for begin, end, offset in ((0, 1, 5 * hour), (hour - 1, 3 * hour, 17),
                                   (10 * hour, 10 * hour, -3 * hour)):
            parts = arrow.hours(begin, end, offset)
            self.assertIsNone(parts[0][1])
            self.assertIsNone(parts[-1][2])
            for before, after in zip(parts, parts[1:]):
                self.assertEqual(before[2], after[1])
                self.assertEqual((before[2] + offset) % hour, 0)
            self.assertEqual(len({p[0] for p in parts}), len(parts))
            self.assertLess(parts[0][2], begin + 1)
            self.assertGreater(parts[-1][1], end)
        self.assertEqual(arrow.hours(0, 1, None), [("unknown", None, None)])

    def test_errors_are_one_line(self):
        out = os.path.join(self.folder.name, "none")
        for args, status, word in (
                (("--db", OPTIONS.store), 2, "-o"),
                (("--db", OPTIONS.store, "-o", out, "--format", "xml"), 2,
                 "parquet"),
                (("--db", "/nowhere", "-o", out), 1, "/nowhere"),
                (("--db", OPTIONS.store, "-o", out, "--tables", "x"), 2,
                 "switches"),
                (("--db", OPTIONS.store, "-o", "/proc/x"), 1, "/proc/x")):
            done = run("export", *args, status=status)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(word, done.stderr)
        # Without pyarrow: what to install.
        fake = os.path.join(self.folder.name, "fake")
        os.mkdir(fake)
        with open(os.path.join(fake, "pyarrow.py"), "w") as f:
            f.write("raise ImportError('no')\n")
        done = run("export", "--db", OPTIONS.store, "-o", out,
                   python_path=fake, status=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("pip install pyarrow", done.stderr)
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--packages", required=True)
    OPTIONS, rest = parser.parse_known_args()
    missing = get_packages(OPTIONS.packages)
    if missing:
        print("skipped: pyarrow and duckdb cannot be had: " + missing)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
