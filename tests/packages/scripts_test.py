#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/demo.sh and tests/run.sh: nothing that they started outlives them.

In a copy of them whose cmake and ctest only sleep: a build or a test that takes
long."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60
# A child that is told of the end only if its whole group is.
SLEEPS = """#!/bin/sh
sleep 600 &
echo $! >"$SLEEPER.new"
mv "$SLEEPER.new" "$SLEEPER"
wait
"""


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ingero-scripts-test-"))
        self.addCleanup(shutil.rmtree, self.dir)
        for name in ("examples/demo.sh", "tests/run.sh", "cmake/stoppable.sh"):
            (self.dir / name).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE / name, self.dir / name)
        for name in ("cmake/setup.sh", "cmake/fetch_cuda_headers.sh",
                     "tests/can_load_bpf.py"):
            self.program(name, "#!/bin/sh\n")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("INGERO_")}
        self.env.update(PATH=f"{self.dir}/bin:{os.environ['PATH']}",
                        SLEEPER=str(self.dir / "sleeper"),
                        TMPDIR=str(self.dir))

    def program(self, name, text):
        path = self.dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def ended(self, script, number, group):
        """Runs it until its sleeper sleeps, then tells it, or all of its
        group as a terminal does, to end."""
        sleeper = self.dir / "sleeper"
        sleeper.unlink(missing_ok=True)
        p = subprocess.Popen([self.dir / script], env=self.env, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + PATIENCE_S
        while not sleeper.exists():
            self.assertIsNone(p.poll(), "it ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        pid = int(sleeper.read_text())
        self.assertTrue(runs(pid))
        (os.killpg if group else os.kill)(p.pid, number)
        # Its output's end is that of all that it started.
        said = p.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(p.returncode, -number, said)
        while runs(pid):
            self.assertLess(time.monotonic(), deadline, "it is left behind")
            time.sleep(0.02)
        self.assertNotIn("passed", said)
        self.assertFalse(list(self.dir.glob("tmp.*")), "its log is left behind")

    def all_ends(self, script):
        for number, group in ((signal.SIGTERM, False), (signal.SIGINT, False),
                              (signal.SIGINT, True), (signal.SIGHUP, True)):
            with self.subTest(script=script, signal=number, group=group):
                self.ended(script, number, group)

    def test_a_build_ends_with_its_script(self):
        self.program("bin/cmake", SLEEPS)
        self.all_ends("examples/demo.sh")
        self.all_ends("tests/run.sh")

    def test_tests_end_with_their_script(self):
        self.program("bin/cmake", "#!/bin/sh\n")
        self.program("bin/ctest", SLEEPS)
        self.all_ends("tests/run.sh")

    def test_a_failed_build_is_told(self):
        self.program("bin/cmake", "#!/bin/sh\necho what is wrong\nexit 3\n")
        for script, says in (("examples/demo.sh", "demo: the build failed"),
                             ("tests/run.sh", "0 passed, 1 failed")):
            done = subprocess.run([self.dir / script], env=self.env, text=True,
                                  stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=PATIENCE_S)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("what is wrong", done.stdout)
            self.assertIn(says, done.stdout)

    def test_help_and_readme_say_how_to_build_with_less(self):
        for script in "examples/demo.sh", "tests/run.sh":
            done = subprocess.run([SOURCE / script, "--help"], text=True,
                                  capture_output=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("CMAKE_BUILD_PARALLEL_LEVEL", done.stdout)
            self.assertIn(f"Usage: {script} ", done.stdout)
            self.assertFalse([line for line in done.stdout.splitlines()
                              if line.startswith(("#", "set "))])
        self.assertTrue("CMAKE_BUILD_PARALLEL_LEVEL=2" in
                        (SOURCE / "README.md").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
