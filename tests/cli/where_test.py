#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero run --where`: findings name the planted line of a real Python program
on the simulated CUDA.

  where_test.py --ingero I --runtime LIBCUDART WhereTest|BothTest
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None
PROGRAM = os.path.join(HERE, "where_program.py")
# What is read; others say so, as python_process_test.py checks.
READ = [(3, 11), (3, 12), (3, 13)]


def line_of(comment):
    with open(PROGRAM, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.rstrip().endswith("# " + comment):
                return number
    raise KeyError(comment)


class Case(unittest.TestCase):

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-where-test-",
                                    dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=os.path.join(self.dir, "trace"),
                        INGERO_DIR_ONLY="1")
        self.env["FAKE_CUDA"] = "context_ms=1,memset_gbps=5,query_us=200"

    def ingero(self, *args, status=0):
        done = subprocess.run([OPTIONS.ingero, *args], env=self.env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=240)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def record(self, mode, *options, seconds=4):
        return self.ingero("run", *options, sys.executable, PROGRAM,
                           OPTIONS.runtime, mode, str(seconds))

    def report(self):
        return json.loads(self.ingero("explain", "--json").stdout)

    def finding(self, cause):
        for finding in self.report()["findings"]:
            if finding["cause"] == cause:
                return finding
        self.fail(f"no {cause}: " + self.ingero("explain").stdout)

    def sampled(self, mode, cause, *options):
        """What --where says, and the finding. On a machine that is busy looks
        come late: then it takes longer."""
        for seconds in 4, 8, 16:
            shutil.rmtree(self.env["INGERO_DIR"], ignore_errors=True)
            done = self.record(mode, *options, "--where=200", seconds=seconds)
            finding = self.finding(cause)
            if finding["code_samples"] >= 30:
                break
        return done.stderr, finding

    def query(self, sql, *options):
        out = self.ingero("query", "--format", "jsonl", *options, sql).stdout
        return [json.loads(line) for line in out.splitlines()]

    def streams(self, kind):
        return [f for f in os.listdir(self.env["INGERO_DIR"])
                if f.startswith(kind + "-")]


class WhereTest(Case):
    """Without the kernel side, which needs root."""

    def test_calls_that_wait_name_their_line(self):
        words, finding = self.sampled("sync", "sync-storm", "--cuda-only")
        self.assertEqual(finding["code"][0]["line"], line_of("planted: sync"))
        self.assertEqual(finding["code"][0]["file"], PROGRAM)
        self.assertEqual(finding["code"][0]["function"], "Gpu.item")
        self.assertGreater(finding["code"][0]["share"], 0.9)
        self.assertGreaterEqual(finding["code_samples"], 10)
        # In words as well.
        said = f"at where_program.py:{line_of('planted: sync')} in Gpu.item ("
        text = " ".join(self.ingero("explain").stdout.split())
        self.assertIn(said, text)
        self.assertIn(said, " ".join(words.split()))
        self.assertIn(said.replace("_", "\\_"),
                      self.ingero("explain", "--format", "markdown").stdout)
        self.assertIn("Code where code was: ", text)

    def test_rows_can_be_asked_and_dumped(self):
        self.record("sync", "--cuda-only", "--where=100")
        stream, = self.streams("code")
        path = os.path.join(self.env["INGERO_DIR"], stream)
        dump = self.ingero("dump", path, "--table", "code_places").stdout
        self.assertIn("Gpu.item", dump)
        read = self.ingero("dump", path, "--table", "code_read").stdout
        rows = self.query(
            "SELECT count(*) AS n, sum(name IS NOT NULL) AS inside, "
            "sum(state = 'running') AS running FROM code_samples")[0]
        self.assertEqual(rows["n"], read.count("\n"))
        # On a machine that is busy looks come late.
        self.assertGreater(rows["n"], 20)
        self.assertGreater(rows["inside"], rows["n"] // 4)
        self.assertGreater(rows["running"], rows["n"] // 4)
        # A line is in the call that it makes, and in no other.
        wrong = self.query(
            "SELECT line, name, count(*) AS n FROM code_samples "
            "WHERE function = 'Gpu.item' AND name <> 'cudaStreamQuery' "
            "GROUP BY line, name")
        right = self.query(
            "SELECT count(*) AS n FROM code_samples "
            "WHERE function = 'Gpu.item' AND name = 'cudaStreamQuery'")[0]
        self.assertLessEqual(sum(r["n"] for r in wrong),
                             1 + right["n"] // 50)
        # Of a copy to send on, paths are not told.
        shared = os.path.join(self.dir, "shared.store")
        self.ingero("share", "-o", shared)
        dump = self.ingero("dump", shared, "--table", "code_lines").stdout
        self.assertIn("where_program.py", dump)
        self.assertNotIn(HERE, dump)
        # Nor, if asked for, whose code it was.
        nameless = os.path.join(self.dir, "nameless.store")
        self.ingero("share", "--redact", "code", "-o", nameless)
        dump = self.ingero("dump", nameless, "--table", "code_lines").stdout
        self.assertNotIn("where_program", dump)
        self.assertNotIn("Gpu.item", dump)
        self.assertIn("function-1", dump)
        # Merged again, the same.
        before = self.query("SELECT * FROM code_samples")
        again = os.path.join(self.dir, "again.store")
        self.ingero("merge", "-o", again)
        after = self.query("SELECT * FROM code_samples", "--db", again)
        self.assertEqual(before, after)

    def test_without_it_nothing_is_looked_at(self):
        self.record("sync", "--cuda-only", seconds=2)
        self.assertEqual(self.streams("code"), [])
        self.assertEqual(self.finding("sync-storm")["code"], [])
        text = " ".join(self.ingero("explain").stdout.split())
        self.assertIn("Code not sampled: `ingero run --where`", text)
        self.assertNotIn("at where_program.py", text)

    def test_that_nothing_ran_is_said_once(self):
        done = self.ingero("run", "--cuda-only", "--where", "sleep", "1")
        self.assertIn("--where: no process of the program was seen running",
                      done.stderr)
        self.assertIn("nothing was recorded", done.stderr)

    def test_usage(self):
        for rate in ("", "0", "x", "1001", "-5", "5x"):
            for command in ["run"], ["trace", "--duration", "1s"]:
                done = self.ingero(*command, f"--where={rate}",
                                   *(["true"] if command == ["run"] else []),
                                   status=2)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("looks a second", done.stderr)
        # Behind a blank it is the program.
        for words in ["100", "true"], ["100"]:
            done = self.ingero("run", "--where", *words, status=2)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("--where=100", done.stderr)


class BothTest(Case):
    """With the kernel side."""

    def test_host_work_names_its_line(self):
        _, finding = self.sampled("host", "host-bound")
        self.assertEqual(finding["code"][0]["file"], PROGRAM)
        lines = {line_of("planted: host"), line_of("planted: host") - 1}
        share = sum(c["share"] for c in finding["code"]
                    if c["line"] in lines)
        self.assertGreater(share, 0.7, finding["code"])
        self.assertTrue(all(c["function"] != "augment_fast"
                            for c in finding["code"]))
        # What is shown is not to be looked for.
        advice = finding["recommendations"][0]["text"]
        self.assertIn("at these lines", advice)
        self.assertNotIn("--where", advice)

    def test_native_code_names_its_function(self):
        done = self.record("native", "--where=100")
        if "native functions cannot be sampled" in done.stderr:
            self.skipTest(done.stderr.strip().splitlines()[0])
        finding = self.finding("host-bound")
        self.assertEqual(finding["code"][0]["line"],
                         line_of("planted: native"))
        self.assertGreaterEqual(finding["native_samples"], 10)
        share = sum(n["share"] for n in finding["native"]
                    if "libz" in n["file"])
        self.assertGreater(share, 0.5, finding["native"])
        self.assertIn("native code: libz", " ".join(
            self.ingero("explain").stdout.split()))

    def test_who_holds_the_interpreter_lock_names_its_line(self):
        """Python's threads wait for it in waits that time out: nobody wakes
        them, and still it is somebody's."""
        _, finding = self.sampled("lock", "lock-held")
        lines = {line_of("planted: lock"), line_of("planted: lock") - 1,
                 line_of("planted: lock") - 2}
        share = sum(c["share"] for c in finding["code"]
                    if c["line"] in lines)
        self.assertGreater(share, 0.7, finding["code"])
        first = self.report()["findings"][0]
        self.assertEqual(first["cause"], "lock-held", first)
        # Waits for the CPU may come beside it, and nothing larger.
        idle = self.report()["feeding"][0]["idle_at_least_ns"]
        self.assertGreater(finding["lost_ns"], idle // 3, finding)

    def test_a_worker_names_its_line(self):
        _, finding = self.sampled("loader", "loader-cpu-bound")
        lines = {line_of("planted: loader"), line_of("planted: loader") - 1}
        share = sum(c["share"] for c in finding["code"]
                    if c["function"] == "Dataset.__getitem__" and
                    c["line"] in lines)
        # The rest is Pipe.recv of the worker, more where it waits for a CPU.
        self.assertGreater(share, 0.5, finding["code"])


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    parser.add_argument("--runtime", required=True)
    OPTIONS, rest = parser.parse_known_args()
    if sys.version_info[:2] not in READ:
        print("skipped: this Python's code is not read")
        return 77
    can_load_bpf.run_tests(rest, "BothTest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
