#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero top`: through a pipe one look as text, on a terminal a page that is
drawn again and again and given back whichever way it ends.

  top_test.py --ingero I --program P [--kprobe K] TopTest|CompanionTest
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None
PATIENCE_S = 120
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


class TopCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ingero-top-test-",
                                                 dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.trace = self.dir / "trace"
        self.temporary = self.dir / "tmp"
        self.trace.mkdir()
        self.temporary.mkdir()
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_", "COLUMNS"))}
        self.env.update(INGERO_DIR=str(self.trace), INGERO_DIR_ONLY="1",
                        TERM="xterm", TMPDIR=str(self.temporary))
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.communicate()

    def top(self, *args, status=0, **options):
        done = subprocess.run([OPTIONS.ingero, "top", *map(str, args)],
                              env=self.env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def start(self, *command, **env):
        p = subprocess.Popen([str(c) for c in command],
                             env={**self.env, **env}, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.started.append(p)
        return p

    def program(self, command=None):
        """One that makes calls until it is killed."""
        shim = pathlib.Path(OPTIONS.ingero).parent / "../lib/libingero_cuda.so"
        p = self.start(*(command or [OPTIONS.program, "--steps", "100000000"]),
                       LD_PRELOAD=str(shim.resolve()))
        # Its first line comes before its first call, the second behind it.
        for _ in range(0 if command else 2):
            self.assertTrue(p.stdout.readline())
        return p

    def words(self, text):
        return " ".join(text.split())

    def check_look(self, text, name):
        """What a look says of a program that computes and makes calls."""
        words = self.words(text)
        self.assertIn(f"in {self.trace}, for ", words)
        self.assertIn("1 process with CUDA calls", words)
        self.assertRegex(words, r"calls [\d,]+ a second")
        self.assertRegex(words, r"judged what was recorded until \S+ \S+ ago")
        self.assertRegex(words, rf"{name}, 0 \S+ ")
        self.assertIn("Operations that took most", words)
        self.assertRegex(words, r"cuda\w+ \S+ % [\d,]+ ")
        # On a busy machine it may not be among those with most.
        self.assertRegex(words, r"Who has the CPUs Process CPUs \S+/\d+\S* ")
        self.assertNotRegex(words, rf"{name} \d+\.\d\d")


class TopTest(TopCase):
    """Without the kernel side, which needs root."""

    def setUp(self):
        super().setUp()
        self.pid, self.terminal = 0, None
        self.addCleanup(self.end_terminal)

    def test_one_look_as_text(self):
        program = self.program()
        for args in (["--once"], [], ["--dir", self.trace]):
            done = self.top(*args)
            self.check_look(done.stdout, f"starved_loader/{program.pid}")
            self.assertNotIn("\x1b", done.stdout)
            self.assertIn("scheduler not recorded, so causes are not known",
                          self.words(done.stdout))
            self.assertEqual(done.stderr, "")
            self.assertEqual(os.listdir(self.temporary), [])
        # The recording is as it was: no store beside it.
        self.assertEqual([f for f in os.listdir(self.trace)
                          if f.endswith(".store")], [])

    def test_nobody_records(self):
        says = "ingero run python3 train.py"
        done = self.top(status=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)
        program = self.program()
        program.kill()
        program.wait()
        done = self.top("--once", status=1)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_usage(self):
        for args, status, says in ((["--onec"], 2, "--once"),
                                   (["now"], 2, "now"),
                                   (["--dir", "/no/such"], 1, "/no/such")):
            done = self.top(*args, status=status)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
        self.program()
        self.env["TMPDIR"] = "/proc/none"
        done = self.top(status=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("/proc/none", done.stderr)

    # ---- on a terminal ----------------------------------------------------

    def on_terminal(self):
        self.end_terminal()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # The other end must have the size before it is asked for.
            fcntl.ioctl(0, termios.TIOCSWINSZ,
                        struct.pack("HHHH", 70, 110, 0, 0))
            os.execve(OPTIONS.ingero, [OPTIONS.ingero, "top"], self.env)
        self.text = ""

    def end_terminal(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.terminal is not None:
            os.close(self.terminal)
        self.pid, self.terminal = 0, None

    def read(self, seconds=0.2):
        """False once all have closed it."""
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.text += os.read(self.terminal, 1 << 16).decode()
            except OSError:
                return False
        return True

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            self.assertLess(time.monotonic(), deadline, self.text)
            self.assertTrue(self.read(), self.text)

    def whole_looks(self):
        """Those that were drawn to their end and had all figures."""
        drawn = self.text.split("\x1b[H")[1:-1]
        return [re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", look) for look in drawn
                if "Operations that took" in look and "a second" in look]

    def local_modes(self):
        return termios.tcgetattr(self.terminal)[3]

    def end(self):
        """Its exit status, after all that it has written."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read():
            self.assertLess(time.monotonic(), deadline, self.text)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return status

    def test_draws_until_it_is_told_to_end(self):
        program = self.program()
        for how, status in (("q", 0), ("\x03", 0),
                            (signal.SIGTERM, -signal.SIGTERM),
                            (signal.SIGABRT, -signal.SIGABRT)):
            self.on_terminal()
            usual = termios.ICANON | termios.ECHO
            self.wait_for(lambda: ENTER in self.text)
            self.assertEqual(self.local_modes() & usual, 0)
            # Drawn over and over, with the figures once they are there.
            self.wait_for(lambda: len(self.whole_looks()) > 1)
            self.check_look(self.whole_looks()[-1],
                            f"starved_loader/{program.pid}")
            if isinstance(how, str):
                os.write(self.terminal, how.encode())
            else:
                os.kill(self.pid, how)
            self.assertEqual(self.end(), status, self.text)
            self.assertEqual(self.local_modes() & usual, usual)
            self.assertTrue(self.text.endswith(LEAVE), self.text[-200:])
            if how != signal.SIGABRT:
                self.assertEqual(os.listdir(self.temporary), [])

    def test_gives_the_terminal_back_while_it_is_stopped(self):
        self.program()
        self.on_terminal()
        usual = termios.ICANON | termios.ECHO
        self.wait_for(lambda: "a second" in self.text)
        os.write(self.terminal, b"\x1a")
        status = os.waitpid(self.pid, os.WUNTRACED)[1]
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertEqual(self.local_modes() & usual, usual)
        self.wait_for(lambda: LEAVE in self.text)
        os.kill(self.pid, signal.SIGCONT)
        self.wait_for(lambda: ENTER in self.text.split(LEAVE)[-1])
        self.assertEqual(self.local_modes() & usual, 0)
        os.write(self.terminal, b"q")
        self.assertEqual(self.end(), 0)

    def test_ends_with_the_recording(self):
        program = self.program()
        self.on_terminal()
        self.wait_for(lambda: "a second" in self.text)
        program.kill()
        program.wait()
        self.assertEqual(self.end(), 0)
        self.assertIn("nobody records any more", self.text.split(LEAVE)[-1])
        self.assertEqual(os.listdir(self.temporary), [])


class CompanionTest(TopCase):
    def test_both_sides(self):
        ready = self.dir / "ready"
        kprobe = self.start(OPTIONS.kprobe, "--quiet", "--dir", self.trace,
                            "--ready-file", ready)
        while not ready.exists():
            self.assertIsNone(kprobe.poll())
            time.sleep(0.02)
        # Before any program: somebody records, and it says what is missing.
        words = self.words(self.top("--once").stdout)
        self.assertIn("no program with CUDA calls yet", words)
        self.assertIn("no process has used a GPU yet", words)
        self.program([pathlib.Path(OPTIONS.ingero).parent / "starve_sim",
                      "--workers", "1", "--load-cpu-us", "10000", "--steps",
                      "100000000"])
        # Until it has used the GPU.
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(r"sim_trainer/\d+, 0 ",
                            self.words(self.top("--once").stdout)):
            self.assertLess(time.monotonic(), deadline)
        done = self.top("--once")
        self.check_look(done.stdout, r"sim_trainer/\d+")
        words = self.words(done.stdout)
        self.assertIn("scheduler too", words)
        trainer = re.search(r"sim_trainer/(\d+), 0 ", words)[1]
        for worker in re.findall(r"sim_worker_0/\d+(\D+\d+) \d+\.\d\d",
                                 words.split("Who has the CPUs")[1]):
            self.assertEqual(worker, ", child of " + trainer)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for option in ("ingero", "program"):
        parser.add_argument("--" + option, required=True)
    parser.add_argument("--kprobe")
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "CompanionTest")


if __name__ == "__main__":
    main()
