#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shim has the rules of base/trace_dir.h in C of its own: in each
environment it must write where the readers look.

trace_dir_agrees_test.py TRACE_DIR_PRINT LIBINGERO_CUDA FAKE_CUDA_FOLDER"""

import os
import subprocess
import sys
import tempfile
import unittest

PRINT, SHIM, FAKES = sys.argv[1:4]

CALL = ("import ctypes; "
        "ctypes.CDLL('libcudart.so.13').cudaFree(ctypes.c_void_p(0))")


class AgreesTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.realpath(self.folder.name)
        os.chmod(self.root, 0o755)

    def tearDown(self):
        self.folder.cleanup()

    def check(self, expected, **environment):
        env = {"PATH": os.environ["PATH"], **environment}
        path, uid = subprocess.run(
            [PRINT], env=env, cwd=self.root, check=True, text=True,
            stdout=subprocess.PIPE).stdout.split("\n")[:2]
        self.assertEqual(path, os.path.join(self.root, expected))
        subprocess.run(
            [sys.executable, "-c", CALL], cwd=self.root, check=True,
            env={**env, "LD_PRELOAD": SHIM, "LD_LIBRARY_PATH": FAKES})
        files = [os.path.join(at, name)
                 for at, _, names in os.walk(self.root) for name in names
                 if name.endswith(".ingero")]
        self.assertEqual(len(files), 1, files)
        self.assertEqual(os.path.realpath(os.path.dirname(files[0])), path)
        self.assertEqual(os.stat(files[0]).st_uid, int(uid))
        self.assertEqual(os.stat(files[0]).st_mode & 0o077, 0)

    def test_ingero_dir(self):
        self.check("traces", INGERO_DIR=self.root + "/traces",
                   XDG_STATE_HOME=self.root + "/x", HOME=self.root)

    def test_relative_ingero_dir(self):
        self.check("traces", INGERO_DIR="traces", HOME=self.root)

    def test_empty_ingero_dir_is_none(self):
        self.check(".local/state/ingero", INGERO_DIR="", HOME=self.root)

    def test_xdg_state_home(self):
        self.check("state/ingero", XDG_STATE_HOME=self.root + "/state",
                   HOME=self.root + "/home")

    def test_relative_xdg_state_home_is_ignored(self):
        self.check(".local/state/ingero", XDG_STATE_HOME="state",
                   HOME=self.root)

    def test_home(self):
        self.check(".local/state/ingero", HOME=self.root)

    @unittest.skipUnless(os.geteuid() == 0, "SUDO_UID counts only for root")
    def test_under_sudo_the_callers_files(self):
        self.check("traces", INGERO_DIR=self.root + "/traces",
                   SUDO_UID="65534", SUDO_GID="65534")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
