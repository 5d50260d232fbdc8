#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero share`: what is to be left out is nowhere in the copy, and the copy
gives the same answer."""
import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest

OPTIONS = None


class ShareTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-share-test-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=self.dir + "/trace", INGERO_DIR_ONLY="1")

    def ingero(self, *args, status=0, **env):
        done = subprocess.run([OPTIONS.ingero, *args], cwd=self.dir,
                              env={**self.env, **env}, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def everything(self, store):
        """All that can be read out of it."""
        return (self.ingero("dump", store).stdout +
                self.ingero("explain", "--json", "--db", store).stdout +
                self.ingero("store", "info", store).stdout)

    def answer(self, store):
        report = json.loads(self.ingero("explain", "--json", "--db",
                                        store).stdout)
        return [(f["cause"], f["lost_ns"]) for f in report["findings"]]

    def test_of_a_recording(self):
        folder = os.path.join(self.dir, "secret_folder")
        os.mkdir(folder)
        program = os.path.join(folder, "hidden_train")
        # A copy, since a link's own path is not what runs.
        shutil.copy(OPTIONS.program, program)
        env = {**self.env, "INGERO_DIR": self.dir + "/trace",
               "LD_PRELOAD": OPTIONS.shim,
               "LD_LIBRARY_PATH": os.path.dirname(OPTIONS.runtime)}
        subprocess.run([program, "--steps", "23"], env=env, check=True,
                       cwd=folder, stdout=subprocess.DEVNULL, timeout=120)
        self.ingero("merge", "-o", "whole.store")
        whole = self.everything("whole.store")
        host = socket.gethostname()
        for secret in "secret_folder", "hidden_train", "--steps", host:
            self.assertTrue(secret in whole, secret)

        done = self.ingero("share", "whole.store", "-o", "some.store")
        self.assertEqual(done.stdout, "")
        self.assertIn("cmdline, paths, host", done.stderr)
        some = self.everything("some.store")
        for secret in "secret_folder", "--steps":
            self.assertFalse(secret in some, secret)
        self.assertTrue("hidden_train" in some)
        self.assertEqual(json.loads(self.ingero(
            "explain", "--json", "--db", "some.store").stdout)["trace"]["host"],
            "host")
        with open("/proc/sys/kernel/random/boot_id") as f:
            boot = f.read()[:4]
        whole, shared = (json.loads(self.ingero(
            "store", "info", "--json", store).stdout)["recording"]
            for store in ("whole.store", "some.store"))
        self.assertIn("-" + boot, whole)
        self.assertEqual(shared, whole.replace("-" + boot, "-0000"))
        self.ingero("share", "--redact", "all", "--db", "whole.store", "-o",
                    "all.store")
        everything = self.everything("all.store")
        for secret in "secret_folder", "--steps", "hidden_train":
            self.assertFalse(secret in everything, secret)
        self.ingero("share", "--redact", "names", "whole.store", "-o",
                    "names.store")
        names = self.everything("names.store")
        self.assertTrue("secret_folder" in names)  # of the command line
        for copy in "some.store", "all.store", "names.store":
            self.ingero("store", "check", copy)
            self.assertEqual(self.answer(copy), self.answer("whole.store"))

    def test_of_the_kept_store(self):
        """With a kernel side: tasks, cgroups, kernels, libraries."""
        self.ingero("share", "--redact", "all", OPTIONS.store, "-o",
                    "all.store")
        whole, shared = self.everything(OPTIONS.store), self.everything(
            "all.store")
        names = json.loads("[" + ",".join(self.ingero(
            "query", "--db", OPTIONS.store, "--format", "jsonl",
            "SELECT name FROM kernels WHERE name IS NOT NULL UNION "
            "SELECT name FROM processes WHERE name NOT LIKE 'ingero%' AND "
            "length(name) > 5 UNION SELECT exe FROM processes WHERE exe LIKE "
            "'/%'").stdout.split("\n")[:-1]) + "]")
        self.assertGreater(len(names), 30)
        for row in names:
            self.assertTrue(row["name"] in whole, row)
            self.assertFalse(row["name"] in shared, row)
        self.assertEqual(self.answer("all.store"), self.answer(OPTIONS.store))
        # What stays: functions, times, counts.
        for name in "cudaStreamSynchronize", "cudaLaunchKernel":
            self.assertTrue(name in shared, name)

    def test_what_is_refused(self):
        os.mkdir(self.dir + "/trace")
        for status, args, says in (
                (2, [OPTIONS.store], "-o"),
                (2, ["--redact", "secrets", OPTIONS.store, "-o", "x"],
                 "'secrets' is none of"),
                (2, ["--redact", "host,", OPTIONS.store, "-o", "x"],
                 "'' is none"),
                (1, ["no.store", "-o", "x"], "no.store"),
                (1, ["-o", "x"], "merge"),
                (1, [OPTIONS.store, "-o", "no/such/x"], "no/such")):
            # Beside INGERO_DIR the user's own recordings would be looked at.
            done = self.ingero("share", *args, status=status, INGERO_DIR="",
                               XDG_STATE_HOME="", HOME=self.dir)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
        self.ingero("share", OPTIONS.store, "-o", "x")
        done = self.ingero("share", OPTIONS.store, "-o", "x", status=1)
        self.assertIn("already", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in "ingero", "store", "shim", "runtime", "program":
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[__file__, "-v", *rest])
