#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero run` and `ingero trace`: the program runs as without them (status,
output, signals), and what it did is recorded, merged and explained.

  run_test.py --ingero I --program P [--kprobe K] RunTest|CompanionTest
"""
import argparse
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402
import reachable  # noqa: E402

OPTIONS = None
NOBODY = 65534
# Ends by SIGTERM or Ctrl-C, as told, after a CUDA program in it has ended. It
# takes its time for that, and says what else comes meanwhile. Its handlers may
# not print: a signal can come while 'ready' is printed, and print refuses to be
# entered twice.
SLEEPER = ("import os, signal, sys, subprocess, time\n"
           "def say(*words):\n"
           "    os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n"
           "def more(number, frame):\n"
           "    say('more', int(number))\n"
           "def end(number, frame):\n"
           "    signal.signal(number, more)\n"
           "    say('got', int(number))\n"
           "    time.sleep(0.5)\n"
           "    sys.exit(5)\n"
           "for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:\n"
           "    signal.signal(number, end)\n"
           "subprocess.run([{program!r}, '--steps', '20'],\n"
           "               stdout=subprocess.DEVNULL)\n"
           "say('ready')\n"
           "while True:\n"
           "    signal.pause()\n")


class RunCase(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-run-test-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.trace = os.path.join(self.dir, "trace")
        self.started = []
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        self.env.update(INGERO_DIR=self.trace, INGERO_DIR_ONLY="1")

    def tearDown(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
            for pipe in (p.stdin, p.stdout, p.stderr):
                if pipe:
                    pipe.close()

    def ingero(self, *args, status=0, before=(), ingero=None, **env):
        done = subprocess.run([*before, ingero or OPTIONS.ingero, *args],
                              env={**self.env, **env}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=180)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def start(self, *args, **options):
        p = subprocess.Popen(args, env=self.env, text=True,
                             stdin=subprocess.DEVNULL, **options)
        self.started.append(p)
        return p

    def words(self, text):
        return " ".join(text.split())

    def report(self, *args):
        return json.loads(self.ingero("explain", "--json", *args).stdout)

    def sleeper(self):
        return [sys.executable, "-c", SLEEPER.format(program=OPTIONS.program)]


class RunTest(RunCase):
    """Without the kernel side, which needs root."""

    def run_it(self, *args, **more):
        return self.ingero("run", "--cuda-only", *args, **more)

    def test_a_buffer_that_cannot_be(self):
        """One line that names what was typed."""
        for words in (["run"], ["trace"]):
            for size in "-1", "0", "1000000G", "much", "18446744073709551616":
                done = self.ingero(*words, "--buffer", size, "true", status=2) \
                    if words == ["run"] else self.ingero(
                        *words, "--buffer", size, "--duration", "1s", status=2)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("--buffer", done.stderr)
                self.assertIn(size, done.stderr)

    def test_records_merges_and_explains(self):
        done = self.run_it(OPTIONS.program, "--steps", "30")
        # Its standard output is its own.
        self.assertRegex(done.stdout, r"(?m)^starved_loader: pid \d+, 30 ")
        self.assertNotIn("Verdict", done.stdout)
        pid = re.search(r"pid (\d+)", done.stdout)[1]
        text = self.words(done.stderr)
        self.assertRegex(text, rf"recorded starved_loader/{pid} \([\d,]+ calls")
        self.assertRegex(text, r"no call (demo_worker/\d+,? )+")
        self.assertIn("Verdict", text)
        # What was shown is what the store says.
        report = self.report()
        self.assertIn(self.words(report["verdict"]).split(".")[0], text)
        calls = re.search(r"\(([\d,]+) calls", text)[1].replace(",", "")
        rows = self.ingero("query", "--format", "csv",
                           "SELECT count(*) FROM calls").stdout.split()
        self.assertEqual(rows[-1], calls)

    def test_quiet_and_output(self):
        store = os.path.join(self.dir, "mine.store")
        done = self.run_it("-q", "-o", store, "--", OPTIONS.program, "--steps",
                           "10")
        self.assertRegex(done.stderr, r"^store +\S+mine\.store \([^\n]+\)\n$")
        self.assertTrue(self.report("--db", store)["processes"])

    def test_the_exit_status_is_the_programs(self):
        self.assertIn("nothing was recorded",
                      self.run_it("sh", "-c", "exit 7", status=7).stderr)
        self.run_it("sh", "-c", "kill -9 $$", status=128 + 9)
        self.run_it("sh", "-c", f"{OPTIONS.program} --steps 10; exit 3",
                    status=3)

    def test_what_cannot_be_run_is_told_before_anything_starts(self):
        for status, name, says in (
                (127, "no_such_program", "there is no such program; give its "),
                (127, "./no/such", "there is no such program; give its "),
                (126, "/etc/passwd", "is no program that can be run; name an "),
                (126, "/tmp", "is no program that can be run; name an ")):
            done = self.run_it(name, status=status)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(f"ingero run: {name}: {says}", done.stderr)
        self.assertFalse(os.path.exists(self.trace))
        # The store cannot be written where it is to be: before, not after.
        mine = os.path.join(self.dir, "mine")
        with open(mine, "w") as f:
            f.write("not a store\n")
        for output, says in ((f"{self.dir}/no/x.store", "make its folder"),
                             (mine, "is no store"),
                             (f"{mine}/x.store", "a part of this path")):
            done = self.run_it("-o", output, "touch", f"{self.dir}/it_ran",
                               status=1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(output, done.stderr)
            self.assertIn(says, done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/it_ran"))
        # It has the right to run, and is no program.
        broken = os.path.join(self.dir, "broken")
        for text, says in (
                ("#!/no/such/interpreter\n", "which is not there"),
                ("#! /tmp -x\nexit 1\n", "which is no program that can be run"),
                # What only the kernel finds out: it is being written.
                ("#!/bin/sh\n", "starting " + broken)):
            with open(broken, "w") as f:
                f.write(text)
                f.flush()
                os.chmod(broken, 0o755)
                if "starting" not in says:
                    f.close()
                done = self.run_it(broken, status=126)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(broken, done.stderr)
            self.assertIn(says, done.stderr)

    def test_usage(self):
        for args, says in (([], "say what to run"),
                           (["--cuda-only", "--"], "say what to run"),
                           ([""], "say what to run"),
                           (["--cuda-olny", "true"], "--cuda-only"),
                           (["--buffer", "much", "true"], "--buffer"),
                           (["--dir"], "--dir needs a value")):
            done = self.ingero("run", *args, status=2)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
        # Options of the program are the program's.
        done = self.run_it("echo", "--dir", "-o", "--", "--help")
        self.assertEqual(done.stdout, "--dir -o -- --help\n")

    def test_a_preload_that_is_there_is_kept(self):
        shim = os.path.normpath(os.path.join(
            os.path.dirname(OPTIONS.ingero), "../lib/libingero_cuda.so"))
        show = ["sh", "-c", "echo $LD_PRELOAD"]
        self.assertEqual(self.run_it(*show).stdout, shim + "\n")
        self.assertEqual(
            self.run_it(*show, LD_PRELOAD="libm.so.6").stdout,
            f"libm.so.6:{shim}\n")
        own = f"{shim} libm.so.6"
        self.assertEqual(self.run_it(*show, LD_PRELOAD=own).stdout, own + "\n")

    def test_who_lacks_the_shim_is_named_with_the_reason(self):
        # The loop is there for the watch, which looks four times a second.
        done = self.run_it("sh", "-c",
                           f"{OPTIONS.program} --steps 10; env -i sleep 2; "
                           "sleep 1")
        text = self.words(done.stderr)
        self.assertRegex(text, r"recorded starved_loader/\d+ \(")
        self.assertRegex(text, r"not seen sleep/\d+: LD_PRELOAD=libingero_cuda"
                               r".so was not in its environment")
        self.assertRegex(text, r"no call [^:]*\bsh/\d+[^:]*: with the shim; "
                               r"made no CUDA call")

    def test_what_is_seen_at_its_very_start_is_not_misjudged(self):
        """Just forked, just executed, just ended: none lacks the shim."""
        done = self.run_it("sh", "-c",
                           f"{OPTIONS.program} --steps 10; i=0; "
                           "while [ $i -lt 300 ]; do (:); /bin/true; "
                           "i=$((i + 1)); done")
        text = self.words(done.stderr)
        self.assertRegex(text, r"recorded starved_loader/\d+ \(")
        self.assertNotIn("not seen", text)

    def test_list_of_two_folders_and_what_cannot_be_read(self):
        two = os.path.join(self.dir, "two")
        for folder in self.trace, two:
            self.run_it("-q", "--dir", folder, OPTIONS.program, "--steps", "5")
        listed = self.ingero("list", "--dir", self.trace, "--dir", two).stdout
        self.assertNotIn("not merged", listed)
        for folder in self.trace, two:  # a path is not broken
            self.assertRegex(listed, rf"store +{folder}/\S+\.store\s+\(")
        for store in os.listdir(two):
            if store.endswith(".store"):
                shutil.rmtree(os.path.join(two, store))
        listed = self.words(self.ingero("list", "--dir", self.trace, "--dir",
                                        two).stdout)
        self.assertRegex(listed, rf"not merged; ingero merge --dir {self.trace} "
                                 rf"--dir {two} --recording \S+")
        with open(two + "/cuda-9-9.ingero", "w") as f:
            f.write("x")
        listed = self.words(self.ingero("list", "--dir", two).stdout)
        self.assertIn("1 that cannot be read", listed)
        self.assertNotIn(" /0", listed)

    def test_a_first_merge_without_events_is_new(self):
        self.run_it("-q", OPTIONS.program, "--steps", "5")
        for name in os.listdir(self.trace):
            if name.endswith(".ingero"):  # its header alone
                os.truncate(os.path.join(self.trace, name), 64 << 10)
        store = os.path.join(self.dir, "x.store")
        self.assertRegex(self.ingero("merge", "-o", store).stderr,
                         r"(?m)^merged ")
        self.assertRegex(self.ingero("merge", "-o", store).stderr,
                         r"(?m)^nothing new ")

    def test_a_line_break_in_a_name(self):
        odd = os.path.join(self.dir, "odd\nname")
        os.symlink(OPTIONS.program, odd)
        self.run_it("-q", odd, "--steps", "5")
        self.assertRegex(self.ingero("list").stdout, r"odd name/\d+")

    def test_children_that_live_on_are_named(self):
        done = self.run_it("sh", "-c", f"{OPTIONS.program} --steps 10; "
                           "sleep 3 >/dev/null 2>&1 & sleep 0.7; exit 0")
        self.assertRegex(self.words(done.stderr), r"still runs .*sleep/\d+")

    def test_a_daemon_that_lives_on_is_named(self):
        """Its parents ended before anybody could look at them."""
        script = os.path.join(self.dir, "daemon.py")
        with open(script, "w") as f:
            f.write("import os, time\n"
                    "out = os.open('/dev/null', os.O_WRONLY)\n"
                    "if os.fork() == 0:\n"
                    "    os.setsid()\n"
                    "    if os.fork() == 0:\n"
                    "        os.dup2(out, 1), os.dup2(out, 2)\n"
                    "        time.sleep(5)\n"
                    "    os._exit(0)\n"
                    "os.wait()\n")
        done = self.run_it("sh", "-c", f"{OPTIONS.program} --steps 5; exec "
                           f"{sys.executable} {script}")
        self.assertRegex(self.words(done.stderr), r"still runs \S*python\S*/\d+")

    def test_what_could_not_be_recorded_is_not_called_no_call(self):
        """Another user's, with no room for a file, or told not to."""
        limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
        cases = [(limit, r"files may have at most 4 KiB there \(ulimit -f\)"),
                 ("os.environ['INGERO_DISABLE'] = '1'",
                  r"INGERO_DISABLE is set in the environment")]
        if os.geteuid() == 0:
            cases.append((f"os.setgid({NOBODY}); os.setuid({NOBODY})",
                          rf"run as user {NOBODY}, who cannot use the trace "
                          r"folder of user 0"))
        for change, why in cases:
            with self.subTest(change):
                # The watch looks four times a second.
                then = (f"import os, resource; {change}; os.execl('/bin/sh', "
                        "'sh', '-c', 'sleep 1')")
                done = self.run_it(sys.executable, "-c", then)
                text = self.words(done.stderr)
                self.assertRegex(text, "CUDA calls, if any were made, could not "
                                       "be recorded: " + why)
                self.assertNotIn("made no CUDA call", text)
                # Beside one that is recorded: in its store, too.
                done = self.run_it("sh", "-c", f"{OPTIONS.program} --steps 5; "
                                   f"exec {sys.executable} -c \"{then}\"")
                self.assertRegex(self.words(done.stderr), "not seen [^:]*: CUDA "
                                 "calls, if any were made, could not be "
                                 "recorded: " + why)
                for _ in range(2):  # a merge keeps it
                    self.assertRegex(self.words(self.ingero("explain").stdout),
                                     why)
                    self.ingero("merge")

    def test_who_is_dead_does_not_run(self):
        """A process that nobody has asked how it ended; its parent lives on."""
        script = os.path.join(self.dir, "zombie.py")
        with open(script, "w") as f:
            f.write("import os, subprocess, sys, time\n"
                    f"subprocess.run([{OPTIONS.program!r}, '--steps', '5'],\n"
                    "               stdout=subprocess.DEVNULL)\n"
                    "parent = os.fork()\n"
                    "if parent > 0:\n"
                    "    time.sleep(1)\n"
                    "    print(parent, open(f'/proc/{parent}/task/{parent}/"
                    "children').read(), flush=True)\n"
                    "    os._exit(0)\n"
                    "os.dup2(os.open('/dev/null', os.O_WRONLY), 2)\n"
                    "if os.fork() == 0:\n"
                    "    time.sleep(0.5)\n"
                    "    os._exit(0)\n"
                    "os.dup2(2, 1)\n"
                    "time.sleep(8)\n")
        done = self.run_it(sys.executable, script)
        alive, dead = done.stdout.split()[-2:]
        runs = self.words(done.stderr).split("still runs ")[1].split(";")[0]
        self.assertIn("/" + alive, runs)
        self.assertNotIn("/" + dead, runs)

    def test_programs_with_pauses_between_them(self):
        """Are one recording, and the report is of all."""
        # One of them lost the variable by which a run's streams are known.
        program = f"{OPTIONS.program} --steps"
        done = self.run_it("sh", "-c", f"env -u INGERO_RUN {program} 10 & "
                           f"{program} 20; wait; sleep 0.5; {program} 10")
        pids = {int(p) for p in re.findall(r"pid (\d+), ", done.stdout)}
        self.assertEqual(len(pids), 3)
        for pid in pids:
            self.assertIn(f"starved_loader/{pid} (", done.stderr)
        self.assertNotRegex(self.words(done.stderr),
                            "beside this program|another program was recorded")
        self.assertEqual(pids, {f["process"]["pid"]
                                for f in self.report()["feeding"]})
        # Another run is another recording, though no time lies between them.
        again = self.run_it(OPTIONS.program, "--steps", "10")
        (pid,) = re.findall(r"pid (\d+), ", again.stdout)
        self.assertEqual([int(pid)], [f["process"]["pid"]
                                      for f in self.report()["feeding"]])

    def test_two_at_a_time_are_told_apart(self):
        """Each tells of its own program, and that there was another."""
        ready = os.path.join(self.dir, "ready")
        first = self.start(
            OPTIONS.ingero, "run", "--cuda-only", "sh", "-c",
            f"touch {ready}; {OPTIONS.program} --steps 30; sleep 1; "
            f"{OPTIONS.program} --steps 130",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        def recording():
            return os.path.isdir(self.trace) and any(
                f.startswith("cuda-") for f in os.listdir(self.trace))
        while not os.path.exists(ready) or not recording():
            self.assertIsNone(first.poll())
            time.sleep(0.02)
        second = self.run_it(OPTIONS.program, "--steps", "40")
        self.assertIsNone(first.poll(), "the first ended before the second")
        out, err = first.communicate(timeout=60)
        theirs = re.findall(r"pid (\d+), \d+ ", out)
        (own,) = re.findall(r"pid (\d+), \d+ ", second.stdout)
        for text, pids, others in ((second.stderr, [own], theirs),
                                   (err, theirs, [own])):
            text = self.words(text)
            self.assertTrue("another program was recorded beside" in text,
                            (pids, others, text[:1500]))
            answer = text[text.index("another program was recorded beside"):]
            verdict = answer[answer.index("Verdict"):]
            for pid in pids:
                self.assertIn(f"starved_loader/{pid} (", text)
            for pid in others:
                self.assertNotIn(pid, verdict)
        # All of it is in the store.
        self.assertLessEqual({int(own), *map(int, theirs)},
                             {f["process"]["pid"]
                              for f in self.report()["feeding"]})

    def test_a_folder_that_cannot_be_written(self):
        """The true reason, before the program runs."""
        if os.geteuid() != 0:
            self.skipTest("as root it can be had without another user's files")
        os.mkdir(self.trace, 0o500)
        os.chown(self.trace, NOBODY, NOBODY)
        drop = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY),
                "--clear-groups"]
        ran = os.path.join(self.dir, "it_ran")
        own = reachable.copy(self, OPTIONS.ingero)
        done = self.ingero("run", "--cuda-only", "touch", ran, before=drop,
                           ingero=os.path.join(own, "bin", "ingero"), status=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(f"cannot write {self.trace}: Permission denied",
                      done.stderr)
        self.assertFalse(os.path.exists(ran))

    def test_a_folder_that_is_gone_at_the_end(self):
        done = self.run_it("sh", "-c", f"rm -r {self.trace}; "
                           f"{OPTIONS.program} --steps 5")
        self.assertNotIn("the program made no CUDA call", done.stderr)
        done = self.run_it("sh", "-c", f"{OPTIONS.program} --steps 5; "
                           f"rm -r {self.trace}")
        self.assertNotIn("made no CUDA call", done.stderr)
        self.assertIn(f"nothing was recorded: cannot write {self.trace}: No "
                      "such file", done.stderr)

    def test_a_shim_that_was_told_to_rest(self):
        done = self.run_it(OPTIONS.program, "--steps", "5", INGERO_DISABLE="1")
        self.assertIn("nothing was recorded: INGERO_DISABLE is set",
                      done.stderr)

    def test_a_signal_sent_to_it_reaches_the_program(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:
            p = self.start(OPTIONS.ingero, "run", "--cuda-only",
                           *self.sleeper(), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
            self.assertEqual(p.stdout.readline(), "ready\n")
            p.send_signal(number)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 5, err)
            self.assertEqual(out, f"got {int(number)}\n")
            self.assertIn("recorded    starved_loader/", err)
            self.assertIn("Verdict", err)

    def test_a_signal_sent_to_the_group_comes_once(self):
        """By the group's number (timeout), or to each process (systemd)."""
        for number, each in ((signal.SIGTERM, False), (signal.SIGINT, False),
                             (signal.SIGUSR1, True), (signal.SIGTERM, True)):
            p = self.start(OPTIONS.ingero, "run", "--cuda-only",
                           *self.sleeper(), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, start_new_session=True)
            self.assertEqual(p.stdout.readline(), "ready\n")
            if each:
                for pid in self.group_of(p.pid):
                    os.kill(pid, number)
            else:
                os.killpg(p.pid, number)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 5, err)
            self.assertEqual(out, f"got {int(number)}\n")
            self.assertIn("Verdict", err)
            self.assertEqual(self.group_of(p.pid), [])

    def group_of(self, pgid):
        """Its processes, the first first."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getpgid(int(name)) == pgid:
                    found.append(int(name))
            except ProcessLookupError:
                continue
        return sorted(found)

    def test_on_a_terminal(self):
        """Ctrl-C is the program's, once; a live line is shown meanwhile."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(OPTIONS.ingero, [OPTIONS.ingero, "run", "--cuda-only",
                                       *self.sleeper()], self.env)
        text, told = b"", False
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    part = os.read(terminal, 65536)
                except OSError:  # all have closed it
                    break
                text += part
            # The first line comes after ten seconds.
            if b"CUDA calls/s of 1 process" in text and not told:
                told = True
                os.write(terminal, b"\x03")
        # Where it is not over by now: the terminal goes, and tells it so.
        os.close(terminal)
        status = os.waitpid(pid, 0)[1]
        text = text.decode()
        self.assertTrue(told, text)
        self.assertEqual(os.waitstatus_to_exitcode(status), 5, text)
        self.assertEqual(text.count("got 2"), 1, text)
        self.assertIn("Verdict", text)

    def test_a_merge_that_fails_says_where_the_streams_are(self):
        store = os.path.join(self.dir, "gone", "x.store")
        os.mkdir(os.path.dirname(store))
        done = self.run_it("-o", store, "sh", "-c",
                           f"{OPTIONS.program} --steps 10; "
                           f"rmdir {os.path.dirname(store)}")
        said = done.stderr.splitlines()[-1]
        self.assertIn("what was recorded is kept", said)
        os.mkdir(os.path.dirname(store))
        # The command that it names does it.
        words = said.split("ingero merge ")[1].split()
        self.ingero("merge", *words)
        self.assertTrue(self.report("--db", store)["processes"])

    def test_without_a_shim_beside_it(self):
        alone = shutil.copy(OPTIONS.ingero, self.dir)
        done = self.ingero("run", "true", status=1, ingero=alone)
        self.assertIn("install it again", done.stderr)
        blank = os.path.join(self.dir, "a b")
        for folder in "bin", "lib":
            os.makedirs(os.path.join(blank, folder))
        shutil.copy(os.path.join(os.path.dirname(OPTIONS.ingero),
                                 "../lib/libingero_cuda.so"),
                    os.path.join(blank, "lib"))
        moved = shutil.copy(OPTIONS.ingero, os.path.join(blank, "bin"))
        done = self.ingero("run", "true", status=1, ingero=moved)
        self.assertIn("without blank or colon", done.stderr)
        # Any other place is as good as that where it was built.
        plain = os.path.join(self.dir, "ab")
        os.rename(blank, plain)
        done = self.ingero("run", "--cuda-only", "-q", OPTIONS.program,
                           "--steps", "10", ingero=os.path.join(plain, "bin", "ingero"))
        self.assertIn("store", done.stderr)

    def test_the_folder(self):
        done = self.run_it("true", status=1, INGERO_DIR="/proc/none")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("/proc/none: no folder can be made there; name another "
                      "one (INGERO_DIR, --dir)", done.stderr)
        # Who only reads says it as well.
        a_file = os.path.join(self.dir, "file")
        with open(a_file, "w"):
            pass
        for command in (["run", "--cuda-only", "true"], ["merge"], ["list"],
                        ["explain"], ["top", "--once"]):
            # Beside INGERO_DIR the user's own recordings would be looked at.
            done = self.ingero(*command, status=1, INGERO_DIR="",
                               XDG_STATE_HOME="", HOME=a_file)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertRegex(done.stderr, a_file + r"/\.local\S*: it, or a part "
                             "of this path, is a file; name another one "
                             r"\(INGERO_DIR, --dir\)")
        os.chdir(self.dir)
        self.addCleanup(os.chdir, "/")
        self.run_it("--dir", "rel/ative", OPTIONS.program, "--steps", "10")
        self.assertTrue([f for f in os.listdir(self.dir + "/rel/ative")
                         if f.endswith(".store")])


class CompanionTest(RunCase):
    def kernel_streams(self):
        return [f for f in os.listdir(self.trace) if f.startswith("kernel-")]

    def companions(self):
        lock = os.path.join(self.trace, "ingero-kprobe.lock")
        with open(lock) as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def wait_for_no_companion(self):
        deadline = time.monotonic() + 30
        while self.companions():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_both_sides(self):
        done = self.ingero("run", OPTIONS.program, "--steps", "60")
        self.assertNotIn("only CUDA calls", done.stderr)
        self.assertEqual(len(self.kernel_streams()), 1)
        self.assertFalse(self.companions())
        rows = self.ingero("query", "--format", "csv",
                           "SELECT count(*) > 100 FROM switches").stdout
        self.assertEqual(rows.split()[-1], "1")
        pid = int(re.search(r"pid (\d+)", done.stdout)[1])
        report = self.report()
        self.assertIn(pid, [p["pid"] for p in report["processes"]])

    def test_a_traces_duration_is_of_recording(self):
        """What loading the probes takes comes on top of it."""
        self.ingero("trace", "-q", "--duration", "1s")
        rows = self.ingero("query", "--format", "csv",
                           "SELECT max(t_ns) - min(t_ns) FROM switches").stdout
        self.assertGreater(int(rows.split()[-1]), 900_000_000)

    def test_the_programs_signals_are_not_the_companions(self):
        """Ctrl-C goes to the whole foreground group of a terminal."""
        p = self.start(OPTIONS.ingero, "run", *self.sleeper(),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       start_new_session=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        os.killpg(p.pid, signal.SIGINT)
        out, err = p.communicate(timeout=120)
        self.assertEqual(p.returncode, 5, err)
        self.assertEqual(out, "got 2\n")
        self.assertNotIn("ended with status", err)
        rows = self.ingero("query", "--format", "csv",
                           "SELECT count(*) FROM switches").stdout
        self.assertGreater(int(rows.split()[-1]), 100)

    def test_killed_it_leaves_whole_streams_and_no_companion(self):
        p = self.start(OPTIONS.ingero, "run", *self.sleeper(),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), "ready\n")
        self.assertTrue(self.companions())
        p.kill()
        self.wait_for_no_companion()
        # The program lives on, as it would without.
        self.ingero("merge")
        rows = self.ingero("query", "--format", "csv",
                           "SELECT count(*) FROM switches").stdout
        self.assertGreater(int(rows.split()[-1]), 100)
        os.kill(int(re.search(r"pid=(\d+)", subprocess.run(
            ["sh", "-c", f"for p in /proc/[0-9]*; do tr '\\0' ' ' "
             f"<$p/environ 2>/dev/null | grep -q 'INGERO_DIR={self.trace} ' "
             f"&& echo pid=${{p#/proc/}}; done"], capture_output=True,
            text=True).stdout)[1]), signal.SIGTERM)

    def test_a_run_without_a_call_is_not_told_of_ld_preload(self):
        done = self.ingero("run", "true")
        self.assertNotIn("start the program with", self.words(done.stderr))
        self.assertIn("the program made no CUDA call that can be seen",
                      self.words(done.stderr))

    def test_killed_it_is_said_once_and_why(self):
        p = self.start(OPTIONS.ingero, "run", *self.sleeper(),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), "ready\n")
        with open(self.trace + "/ingero-kprobe.lock") as f:
            os.kill(int(f.readline()), signal.SIGKILL)
        p.send_signal(signal.SIGTERM)
        err = p.communicate(timeout=120)[1]
        self.assertRegex(err, r"ingero run: ingero-kprobe: was ended by signal 9")
        self.assertIn("for lack of memory", err)

    def test_why_it_cannot_record_names_the_file(self):
        os.makedirs(self.trace + "/ingero-kprobe.lock")
        done = self.ingero("run", OPTIONS.program, "--steps", "5")
        self.assertIn("only CUDA calls are recorded", done.stderr)
        self.assertIn(self.trace + "/ingero-kprobe.lock", done.stderr)

    def test_a_program_that_is_not_begun_leaves_no_report(self):
        broken = os.path.join(self.dir, "broken")
        with open(broken, "w") as f:
            f.write("#!/bin/sh\n")
            f.flush()
            os.chmod(broken, 0o755)
            done = self.ingero("run", broken, status=126)
        self.assertNotIn("Verdict", done.stderr)
        self.assertNotIn("recorded ", done.stderr)
        self.assertFalse(self.companions())

    def test_one_that_records_already_is_used(self):
        ready = os.path.join(self.dir, "ready")
        kprobe = self.start(OPTIONS.kprobe, "--dir", self.trace,
                            "--ready-file", ready, stderr=subprocess.PIPE)
        while not os.path.exists(ready):
            self.assertIsNone(kprobe.poll())
            time.sleep(0.02)
        done = self.ingero("run", OPTIONS.program, "--steps", "30")
        self.assertIn("this uses what it records", done.stderr)
        self.assertIn("Verdict", done.stderr)
        self.assertEqual(len(self.kernel_streams()), 1)
        self.assertTrue(self.companions())
        kprobe.send_signal(signal.SIGINT)
        kprobe.communicate(timeout=60)
        self.assertEqual(kprobe.returncode, 0)

    def test_one_that_is_first_meanwhile_is_used(self):
        """Of two runs at a time each finds nobody who records, and starts
        its own companion; the second one's is refused."""
        own = os.path.join(self.dir, "own")
        for folder in "bin", "lib":
            os.makedirs(os.path.join(own, folder))
        beside = os.path.dirname(OPTIONS.ingero)
        shutil.copy(OPTIONS.ingero, os.path.join(own, "bin"))
        shutil.copy(os.path.join(beside, "../lib/libingero_cuda.so"),
                    os.path.join(own, "lib"))
        begun, go = (os.path.join(self.dir, n) for n in ("begun", "go"))
        late = os.path.join(own, "bin", "ingero-kprobe")
        with open(late, "w") as f:
            f.write(f"#!/bin/sh\n: >{begun}\nwhile [ ! -e {go} ]; do sleep 0.05;"
                    f" done\nexec {os.path.abspath(OPTIONS.kprobe)} \"$@\"\n")
        os.chmod(late, 0o755)
        second = self.start(os.path.join(own, "bin", "ingero"), "run",
                            OPTIONS.program, "--steps", "30",
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not os.path.exists(begun):
            self.assertIsNone(second.poll())
            time.sleep(0.02)
        first = self.start(OPTIONS.ingero, "run", *self.sleeper(),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), "ready\n")
        with open(go, "w"):
            pass
        said = second.communicate(timeout=120)[1]
        self.assertEqual(second.returncode, 0, said)
        self.assertIn("this uses what it records", said)
        self.assertNotIn("only CUDA calls are recorded", said)
        # Nor are its threads' states missing for want of a companion.
        self.assertNotIn("started late", said)
        self.assertIn("Verdict", said)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=120)
        self.assertEqual(len(self.kernel_streams()), 1)

    def test_without_rights(self):
        """One line says what is lost; the rest is as ever."""
        os.mkdir(self.trace)
        os.chown(self.trace, NOBODY, NOBODY)
        drop = [shutil.which("setpriv"), "--reuid", str(NOBODY), "--regid", str(NOBODY),
                "--clear-groups", "--inh-caps=-all"]
        own = os.path.join(reachable.copy(self, OPTIONS.ingero), "bin")
        ingero = os.path.join(own, "ingero")
        fake = os.path.join(self.dir, "bin")
        os.mkdir(fake)
        cases = [(None, "there is no sudo"),
                 ("exit 1", "no terminal to ask")]
        # One that lets it, and gives no rights: the companion's own words.
        cases.append(('shift 2; exec "$@"', "not permitted to load BPF"))
        for script, says in cases:
            sudo = os.path.join(fake, "sudo")
            if script:
                with open(sudo, "w") as f:
                    f.write(f"#!/bin/sh\n{script}\n")
                os.chmod(sudo, 0o755)
            done = self.ingero("run", os.path.join(own, "starved_loader"),
                               "--steps", "10", ingero=ingero, before=drop,
                               PATH=f"{fake}:/nowhere",
                               LD_LIBRARY_PATH=f"{own}/../lib/fake_cuda")
            first = done.stderr.split("\n")[0]
            self.assertIn("only CUDA calls are recorded", first)
            self.assertIn(says, first)
            self.assertIn("Verdict", done.stderr)
        done = self.ingero("trace", "--duration", "1s", before=drop, status=1,
                           ingero=ingero, PATH="/nowhere")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("there is no sudo", done.stderr)

    def test_trace(self):
        shim = os.path.join(os.path.dirname(OPTIONS.ingero),
                            "../lib/libingero_cuda.so")
        self.env["LD_PRELOAD"] = shim
        program = self.start(OPTIONS.program, "--steps", "1000",
                             stdout=subprocess.PIPE)
        del self.env["LD_PRELOAD"]
        # Its first calls can take a second on a busy machine.
        while not os.path.exists(self.trace) or not os.listdir(self.trace):
            self.assertIsNone(program.poll())
            time.sleep(0.05)
        done = self.ingero("trace", "--duration", "2s")
        self.assertRegex(self.words(done.stderr),
                         rf"recorded .*starved_loader/{program.pid} \(")
        self.assertIn("Verdict", done.stderr)
        program.terminate()
        # Ctrl-C ends it as well, and the end of the process that it is for.
        for end in "signal", "process":
            target = self.start("sleep", "600")
            p = self.start(OPTIONS.ingero, "trace", "--pid", str(target.pid),
                           stderr=subprocess.PIPE)
            while not os.path.exists(self.trace) or not self.companions():
                self.assertIsNone(p.poll())
                time.sleep(0.05)
            if end == "signal":
                p.send_signal(signal.SIGINT)
            else:
                target.kill()
                target.wait()
            p.communicate(timeout=120)
            # Told while it was still starting, the companion ends by itself.
            self.wait_for_no_companion()

    def test_the_companions_reason_is_told_whole(self):
        folder = os.path.join(self.dir, "a\nb")
        os.mkdir(folder)
        with open(os.path.join(folder, "ingero-kprobe.lock"), "w") as lock:
            # Shared: who asks whether somebody records here finds nobody.
            fcntl.flock(lock, fcntl.LOCK_SH)
            done = self.ingero("run", "--dir", folder, "true")
        first = done.stderr.splitlines()[0]
        self.assertIn("only CUDA calls are recorded", first)
        self.assertRegex(first, "another ingero-kprobe already records into "
                         r".*/a b; end it first, or record into another "
                         r"folder \(--dir, INGERO_DIR\)")
        # What it advises where it loses events can be given here, too; what it
        # would refuse is refused before anything starts.
        done = self.ingero("run", "--buffer", "3G", "true", status=2)
        self.assertIn("3 GiB per CPU is too much", done.stderr.splitlines()[0])

    def test_trace_usage(self):
        for args, status, says in ((["--duration", "60"], 2, "60s"),
                                   (["--duration", "0s"], 2, "60s"),
                                   (["--pid", "x"], 2, "4242"),
                                   (["--pid", "4194305"], 1, "no process"),
                                   (["true"], 2, "'true'")):
            done = self.ingero("trace", *args, status=status)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)


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
