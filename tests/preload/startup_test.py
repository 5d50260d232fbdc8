#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim adds to a process that makes no CUDA call, counted from outside.

  startup_test.py libingero_cuda.so count_syscalls

System calls: those by which the loader maps one more library, one fstat (what
descriptor 2 is at the start), a page that a fork wipes, and signals blocked
meanwhile. No file is opened. Instructions: a small part of the budget
of 1 ms, which is 3 million of them.
"""
import collections
import os
import platform
import subprocess
import sys
import tempfile
import unittest

SHIM, COUNTER = sys.argv[1:3]
# By number, on x86-64.
NAMES = {0: "read", 3: "close", 5: "fstat", 9: "mmap", 10: "mprotect",
         11: "munmap", 14: "rt_sigprocmask", 28: "madvise", 17: "pread64", 257: "openat",
         262: "newfstatat", 332: "statx"}
# The most of each: a library has four to six segments.
ADDED = {"openat": 1, "read": 1, "pread64": 4, "fstat": 2, "close": 1,
         "mmap": 7, "mprotect": 3, "munmap": 1, "madvise": 1,
         "rt_sigprocmask": 2}


class StartupTest(unittest.TestCase):
    def count(self, mode, command, shim, env=None):
        # No folder yet, and none to be made.
        with tempfile.TemporaryDirectory() as home:
            full = {"PATH": os.environ["PATH"], "HOME": home,
                    "INGERO_DIR": os.path.join(home, "traces"), **(env or {})}
            if shim:
                full["COUNT_PRELOAD"] = SHIM
            done = subprocess.run([COUNTER, mode, *command], env=full,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.listdir(home), [])
        return done.stdout

    def calls(self, *args, **kw):
        calls = collections.Counter()
        for line in self.count("calls", *args, **kw).splitlines():
            number, path = line.split(" ", 1)
            name = NAMES.get(int(number), f"syscall {number}")
            # Two ways of the loader to ask the same.
            if name in ("newfstatat", "statx"):
                name = "fstat"
            calls[name, path] += 1
        return calls

    def added(self, command, env=None):
        return (self.calls(command, True, env) -
                self.calls(command, False, env))

    def check(self, command, env=None, more=None):
        allowed = {**ADDED, **(more or {})}
        added = self.added(command, env)
        self.assertIn(("openat", SHIM), added)
        names = collections.Counter()
        for (name, path), count in added.items():
            names[name] += count
            self.assertIn(path, ("", SHIM))
        for name, count in names.items():
            self.assertLessEqual(count, allowed.get(name, 0), (name, added))

    def test_true(self):
        self.check(["/bin/true"])

    def test_settings_cost_nothing_either(self):
        self.check(["/bin/true"], {"INGERO_CLOCK": "tsc",
                                   "INGERO_CLEAR_DEEPBIND": "1"})
        # What was asked for is noted, and libraries are looked for in what is
        # loaded: a lock and a pass, each with signals blocked.
        self.check(["/bin/true"], {"INGERO_APIS": "all"}, {"rt_sigprocmask": 6})

    def test_a_program_that_opens_libraries(self):
        # dlopen and dlsym go through the shim.
        self.check([sys.executable, "-S", "-E", "-c",
                    "import ctypes; ctypes.CDLL('libc.so.6').getpid()"],
                   {"PYTHONDONTWRITEBYTECODE": "1"})

    def test_the_counter_sees_what_is_there(self):
        self.assertIn(("openat", "/dev/null"),
                      self.calls(["/bin/cat", "/dev/null"], False))

    def test_instructions(self):
        bare = int(self.count("steps", ["/bin/true"], False))
        shim = int(self.count("steps", ["/bin/true"], True))
        print(f"instructions of /bin/true: {bare}, with the shim {shim}",
              file=sys.stderr)
        self.assertGreater(bare, 10000)
        self.assertLess(shim - bare, 300000)


if __name__ == "__main__":
    if platform.machine() != "x86_64":
        print("x86-64 only", file=sys.stderr)
        sys.exit(77)
    if subprocess.run([COUNTER, "calls", "/bin/true"],
                      stdout=subprocess.DEVNULL).returncode == 77:
        print("no ptrace here", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
