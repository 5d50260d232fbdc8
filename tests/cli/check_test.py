#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero check`: says "works" only of what it tried, and names the fault and
the remedy of what is broken.

  check_test.py --ingero I --shim S [TESTS]
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import reachable  # noqa: E402

OPTIONS = None


class CheckCase(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-check-test-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=os.path.join(self.dir, "trace"),
                        INGERO_DIR_ONLY="1",
                        LD_LIBRARY_PATH=os.path.dirname(OPTIONS.shim),
                        TMPDIR=self.dir)

    def check(self, *args, status=0, ingero=None, **env):
        done = subprocess.run([*args, ingero or OPTIONS.ingero, "check",
                               "--json"], env={**self.env, **env}, text=True,
                              capture_output=True, timeout=90)
        self.assertEqual(done.stderr, "")
        report = json.loads(done.stdout)
        items = {item["name"]: item for item in report["items"]}
        # Root in a container may lack the rights, and is told so.
        if items["Companion"]["state"] == "failed":
            status = 1
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(report["ok"], status == 0)
        # Nothing stays behind.
        self.assertEqual([x for x in os.listdir(self.dir) if "check" in x], [])
        return items


class ShimTest(CheckCase):
    def test_works(self):
        shim = self.check()["Shim"]
        self.assertEqual(shim["state"], "works")
        self.assertIn("1,000 of 1,000", shim["text"])
        self.assertIn(os.path.realpath(OPTIONS.shim), shim["text"])

    def test_not_found_by_name(self):
        shim = self.check(LD_LIBRARY_PATH="/nowhere")["Shim"]
        self.assertEqual(shim["state"], "limited")
        self.assertIn("LD_LIBRARY_PATH=" + os.path.dirname(OPTIONS.shim),
                      shim["todo"])

    def test_not_there(self):
        alone = shutil.copy(OPTIONS.ingero, self.dir)
        shim = self.check(status=1, ingero=alone, LD_LIBRARY_PATH="/nowhere",
                          PATH="")["Shim"]
        self.assertEqual(shim["state"], "failed")
        self.assertIn("did not load", shim["text"])

    def test_damaged(self):
        with open(os.path.join(self.dir, "libingero_cuda.so"), "w") as f:
            f.write("not a library")
        shim = self.check(LD_LIBRARY_PATH=self.dir)["Shim"]
        self.assertEqual(shim["state"], "limited")  # the one beside us is well

    def test_switched_off(self):
        shim = self.check(status=1, INGERO_DISABLE="1")["Shim"]
        self.assertIn("INGERO_DISABLE", shim["todo"])
        shim = self.check(status=1, INGERO_APIS="launch")["Shim"]
        self.assertIn("INGERO_APIS", shim["todo"])

    def test_folders(self):
        self.assertEqual(self.check()["Folder"]["state"], "works")
        link = os.path.join(self.dir, "link")
        os.symlink("/tmp", link)
        self.assertIn("symbolic link", self.check(
            status=1, INGERO_DIR=link)["Folder"]["text"])
        self.assertIn("is not a folder", self.check(
            status=1, INGERO_DIR=OPTIONS.shim)["Folder"]["text"])
        self.assertEqual(self.check(status=1, INGERO_DIR="/proc/none")
                         ["Folder"]["state"], "failed")

    def test_no_room(self):
        """That is not ours to have reported."""
        full = os.path.join(self.dir, "full")
        os.mkdir(full)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs",
                           full], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted")
        self.addCleanup(subprocess.run, ["umount", full], check=True)
        shim = self.check(TMPDIR=full)["Shim"]
        self.assertEqual(shim["state"], "not-tried")
        self.assertIn(full, shim["text"])
        self.assertIn("No space left", shim["text"])
        self.assertIn("TMPDIR", shim["todo"])

    def test_text_and_usage(self):
        done = subprocess.run([OPTIONS.ingero, "check"], env=self.env,
                              text=True, capture_output=True, timeout=90)
        failed = self.check()["Companion"]["state"] == "failed"
        self.assertEqual((done.returncode, done.stderr), (int(failed), ""))
        self.assertRegex(done.stdout, r"(?m)^Shim +works ")
        done = subprocess.run([OPTIONS.ingero, "check", "--what"], text=True,
                              capture_output=True, timeout=90)
        self.assertEqual((done.returncode, done.stdout), (2, ""))


class CompanionTest(CheckCase):
    ALWAYS = ["task_newtask", "sched_process_exec", "sched_process_exit",
              "task_rename", "existing_tasks", "mm_page_alloc", "sched_waking",
              "sched_wakeup_new", "sched_switch"]

    def test_each_probe_runs(self):
        items = self.check()
        self.assertIn(items["Companion"]["state"], ("works", "limited"))
        for name in self.ALWAYS:
            self.assertEqual(items[name]["state"], "works", items[name])
            self.assertRegex(items[name]["text"], r"^[1-9][\d,]* runs")
        # Not without saying so.
        self.assertEqual(items["mark_victim"]["state"], "not-tried")

    def test_without_rights(self):
        own = reachable.copy(self, OPTIONS.ingero)
        items = self.check("setpriv", "--reuid", "65534", "--regid", "65534",
                           "--clear-groups", "--inh-caps=-all",
                           ingero=os.path.join(own, "bin", "ingero"),
                           LD_LIBRARY_PATH=os.path.join(own, "lib"),
                           INGERO_DIR="/tmp/ingero-check-test-none",
                           TMPDIR="/tmp")
        companion = items["Companion"]
        self.assertEqual(companion["state"], "not-tried")
        self.assertIn("CAP_BPF", companion["text"])
        self.assertEqual(companion["todo"], "sudo ingero check")
        self.assertNotIn("sched_switch", items)

    def test_not_built(self):
        alone = shutil.copy(OPTIONS.ingero, self.dir)
        self.assertIn("there is no ingero-kprobe", self.check(
            status=1, ingero=alone, PATH="/nowhere")["Companion"]["text"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "shim"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
