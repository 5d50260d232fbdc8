#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""service_test.py UNIT KPROBE: the systemd unit.

systemd takes it as it is, and the companion records with the capabilities that
the unit leaves it and no others; without those that it cannot do without it
says which is missing.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNIT, KPROBE = sys.argv[1:3]
# By number, linux/capability.h.
CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_SYS_PTRACE": 19,
                "CAP_SYSLOG": 34, "CAP_SYS_NICE": 23}
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38


def unit_text():
    with open(UNIT, encoding="utf-8") as f:
        return f.read()


def bounding_set():
    line = re.search(r"^CapabilityBoundingSet=(.*)$", unit_text(), re.M)
    return set(line[1].split())


def run(capabilities, folder, seconds="1s"):
    """The companion, with no capabilities but these. (status, stderr)"""
    libc = ctypes.CDLL(None, use_errno=True)
    keep = {CAPABILITIES[c] for c in capabilities}

    def drop():
        with open("/proc/sys/kernel/cap_last_cap", encoding="utf-8") as f:
            last = int(f.read())
        for number in range(last + 1):
            if number not in keep and libc.prctl(PR_CAPBSET_DROP, number, 0, 0,
                                                 0) != 0:
                os._exit(97)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            os._exit(96)

    done = subprocess.run([KPROBE, "--duration", seconds, "--dir", folder],
                          stderr=subprocess.PIPE, text=True, preexec_fn=drop,
                          timeout=60, check=False)
    return done.returncode, done.stderr


class ServiceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ingero-service-")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_systemd_takes_it(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        # The program that it starts need not be installed.
        path = os.path.join(self.folder, "ingero-kprobe.service")
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(r"^ExecStart=\S+", "ExecStart=" + KPROBE,
                           unit_text(), flags=re.M))
        done = subprocess.run(["systemd-analyze", "verify", path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if "Failed to" in done.stdout and "ingero" not in done.stdout:
            self.skipTest("systemd-analyze: " + done.stdout.splitlines()[0])
        # It complains of other units of the machine too.
        about = [line for line in done.stdout.splitlines()
                 if "ingero" in line]
        self.assertEqual(about, [], done.stdout)

    def test_names_capabilities_that_exist(self):
        self.assertTrue(bounding_set())
        self.assertLessEqual(bounding_set(), set(CAPABILITIES))

    def test_records_with_what_the_unit_leaves(self):
        status, said = run(bounding_set(), self.folder)
        self.assertEqual(status, 0, said)
        skipped = [line for line in said.splitlines() if "skipped" in line
                   and "nvml" not in line and "no such tracepoint" not in line]
        self.assertEqual(skipped, [], said)
        for probe in ("sched_switch", "sched_waking", "mm_page_alloc"):
            self.assertIn(f"probe {probe}: attached", said)
        self.assertRegex(said, r"recorded [1-9][0-9,]* switches")

    def test_names_what_it_cannot_do_without(self):
        for needed in ("CAP_BPF", "CAP_PERFMON"):
            self.assertIn(needed, bounding_set())
            status, said = run(bounding_set() - {needed}, self.folder)
            self.assertEqual(status, 1, said)
            self.assertIn(needed + " missing", said)
            self.assertEqual(len(said.splitlines()), 1, said)
        self.assertEqual([f for f in os.listdir(self.folder)
                          if f.startswith("kernel-")], [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: needs root (BPF)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
