#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is read of a running Python is true: real interpreters, all that are
installed here, which change their frames as fast as they can meanwhile."""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ARGS = None

# The reader's names of what the headers call otherwise.
PROBE = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_frame.h>
#define P(name, value) printf("%s %zu\n", #name, (size_t)(value))
#define O(name, type, member) P(name, offsetof(type, member))
int main(void) {
  O(runtime_interpreters, _PyRuntimeState, interpreters.head);
  O(interpreter_next, PyInterpreterState, next);
  O(interpreter_threads, PyInterpreterState, threads.head);
  O(thread_next, PyThreadState, next);
  O(thread_interpreter, PyThreadState, interp);
  O(thread_native_id, PyThreadState, native_thread_id);
  O(thread_frame, PyThreadState, cframe);
  O(cframe_frame, _PyCFrame, current_frame);
  O(frame_code, _PyInterpreterFrame, f_code);
  O(frame_previous, _PyInterpreterFrame, previous);
  O(frame_instruction, _PyInterpreterFrame, prev_instr);
  O(frame_owner, _PyInterpreterFrame, owner);
  O(code_file, PyCodeObject, co_filename);
  O(code_qualified_name, PyCodeObject, co_qualname);
  O(code_first_line, PyCodeObject, co_firstlineno);
  O(code_line_table, PyCodeObject, co_linetable);
  O(code_instructions, PyCodeObject, co_code_adaptive);
  O(object_type, PyObject, ob_type);
  O(object_size, PyVarObject, ob_size);
  O(bytes_data, PyBytesObject, ob_sval);
  O(text_length, PyASCIIObject, length);
  O(text_state, PyASCIIObject, state);
  P(text_ascii_data, sizeof(PyASCIIObject));
  P(text_compact_data, sizeof(PyCompactUnicodeObject));
  return 0;
}
"""


def pythons():
    """{version: path} of the interpreters of this machine."""
    found = {}
    paths = [sys.executable]
    paths += glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))
    paths += glob.glob("/usr/bin/python3*[0-9]") + ["/usr/bin/python3"]
    for path in paths:
        try:
            version = subprocess.run(
                [path, "-c", "import sys; print(*sys.version_info[:3])"],
                capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        found.setdefault(tuple(map(int, version.split())), path)
    return found


READ = [(3, 11), (3, 12), (3, 13)]


def supported():
    return {v: p for v, p in pythons().items() if v[:2] in READ}


class Changing:
    """The program, and what it can be at."""

    def __init__(self, python, *args):
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "changing.py"), *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = set()
        for line in self.process.stdout:
            words = line.rstrip("\n").split("\t")
            if words[0] == "ready":
                break
            if len(words) == 3:
                self.lines.add((words[0], words[1], int(words[2])))
        self.pid = self.process.pid
        if args:
            self.child = int(self.process.stdout.readline().split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def look(pid, looks, pause_us, *seed):
    """Samples and (threads, dropped, partial, cpu_ns) of look_print."""
    out = subprocess.run(
        [ARGS.look_print, str(pid), str(looks), str(pause_us),
         *map(str, seed)], capture_output=True, timeout=300)
    assert out.returncode == 0, out
    rows = [line.split("\t")
            for line in out.stdout.decode(errors="replace").splitlines()]
    samples = [(int(r[1]), (r[2], r[4], int(r[3])), (r[5], r[7], int(r[6])))
               for r in rows if r[0] == "at"]
    counts = [r for r in rows if r[0] == "counts"]
    return samples, tuple(map(int, counts[0][1:])) if counts else rows


class TruthTest(unittest.TestCase):

    def can_be_at(self, place, lines):
        file, function, line = place
        if file == "<string>":
            # Made: of one generation only.
            if made := re.fullmatch(r"made_(\d+)", function):
                n = int(made[1])
                return 1000 * n < line <= 1000 * n + 4
            return function == "<module>" and (
                line <= 1 or 1 <= line % 1000 <= 4)
        if line == 0 or place in lines:  # 0: an instruction of no line
            return True
        if file == "/opt/site-packages/package.py":
            return (function, line) in [
                ("down", 2), ("down", 3), ("package", 6), ("package", 7),
                ("package.<locals>.<listcomp>", 7), ("<module>", 1),
                ("<module>", 2), ("<module>", 6)]
        # Python's own: Thread's and Event's methods, and the import of them.
        return "/lib/python3" in file or file.startswith("<frozen")

    def test_every_sample_is_a_line_that_the_program_can_be_at(self):
        for version, python in supported().items():
            with self.subTest(version=version), Changing(python) as program:
                # Several kinds of code are to be met: threads that wait for
                # the GIL stay where they are, for how long is chance.
                seen = set()
                for _ in range(20):
                    samples, (threads, dropped, partial, cpu_ns) = look(
                        program.pid, 4000, 200)
                    self.check(samples, threads, dropped, program)
                    seen |= {re.sub(r"\d+", "N", s[1][1]) for s in samples}
                    if len(seen & {"numbers", "leaf", "deep", "made_N", "make",
                                   "Thing.method", "of_package"}) >= 3:
                        break
                else:
                    self.fail(f"few kinds of code were met: {seen}")
                print(f"{version}: {len(samples)} samples, {dropped} dropped, "
                      f"{partial} of callers only, "
                      f"{cpu_ns / 1000 / max(1, threads):.1f} us each")

    def check(self, samples, threads, dropped, program):
        wrong = [s for s in samples for place in s[1:]
                 if not self.can_be_at(place, program.lines)]
        self.assertEqual(wrong[:5], [])
        self.assertEqual(len(samples) + dropped, threads)
        self.assertGreater(len(samples), threads // 2)
        # Of a package's code its user is told.
        users = {s[1][1] for s in samples if s[2][1] == "down"}
        self.assertLessEqual(users, {"of_package"})
        tasks = {s[0] for s in samples}
        self.assertIn(program.pid, tasks)
        self.assertEqual(len(tasks), 4)

    def test_a_child_of_a_fork_has_its_own_thread_number(self):
        for version, python in supported().items():
            with self.subTest(version=version), \
                    Changing(python, "fork") as program:
                samples, _ = look(program.child, 300, 500)
                self.assertEqual({s[0] for s in samples}, {program.child})
                wrong = [s for s in samples for place in s[1:]
                         if not self.can_be_at(place, program.lines)]
                self.assertEqual(wrong[:5], [])

    def test_it_is_not_stopped_and_not_traced(self):
        python = next(iter(supported().values()))
        with Changing(python) as program:
            looking = subprocess.Popen(
                [ARGS.look_print, str(program.pid), "400", "500"],
                stdout=subprocess.DEVNULL)
            states = set()
            while looking.poll() is None:
                with open(f"/proc/{program.pid}/status",
                          encoding="utf-8") as file:
                    status = dict(line.split(":", 1) for line in file)
                states.add(status["State"].split()[0])
                self.assertEqual(status["TracerPid"].strip(), "0")
            # D: its own faults, where the disk is busy.
            self.assertLessEqual(states, {"R", "S", "D"})

    def test_damaged_memory_ends_in_no_crash(self):
        for version, python in supported().items():
            with self.subTest(version=version), Changing(python) as program:
                for seed in range(8):
                    look(program.pid, 300, 100, seed)

    def test_other_versions_say_so(self):
        others = {v: p for v, p in pythons().items()
                  if (3, 6) < v[:2] and v[:2] not in READ}
        if not others:
            self.skipTest("no other Python is installed here")
        for version, python in others.items():
            program = subprocess.Popen(
                [python, "-c", "print('ready', flush=True); input()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            program.stdout.readline()
            samples, rows = look(program.pid, 1, 1)
            program.communicate("\n")
            self.assertEqual(samples, [])
            self.assertEqual(rows[0][0], "no")
            self.assertIn("only 3.11, 3.12 and 3.13", rows[0][1])

    def test_what_is_no_python_is_none(self):
        program = subprocess.Popen(["sleep", "60"])
        samples, rows = look(program.pid, 1, 1)
        program.kill()
        program.wait()
        self.assertEqual((samples, rows), ([], [["no", ""]]))


class LayoutTest(unittest.TestCase):

    def test_offsets_are_those_of_the_headers(self):
        compiled = 0
        for version, python in supported().items():
            if version[1] >= 13:
                continue  # tells them itself
            include = subprocess.run(
                [python, "-c",
                 "import sysconfig; print(sysconfig.get_path('include'))"],
                capture_output=True, text=True, check=True).stdout.strip()
            if (not os.path.exists(include + "/internal/pycore_frame.h") or
                    shutil.which("cc") is None):
                continue
            with self.subTest(version=version), \
                    tempfile.TemporaryDirectory() as folder:
                with open(folder + "/probe.c", "w", encoding="utf-8") as file:
                    file.write(PROBE)
                subprocess.run(["cc", "-w", "-I" + include,
                                "-I" + include + "/internal", "probe.c", "-o",
                                "probe"], cwd=folder, check=True)
                expected = subprocess.run([folder + "/probe"], check=True,
                                          capture_output=True, text=True).stdout
                ours = subprocess.run(
                    [ARGS.look_print, "layout", str(version[1])], check=True,
                    capture_output=True, text=True).stdout
                self.assertEqual(ours, expected)
                compiled += 1
        if compiled == 0:
            self.skipTest("no headers of Python 3.11 or 3.12, or no compiler")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--look-print", required=True)
    ARGS, rest = parser.parse_known_args()
    if not supported():
        print("skipped: no Python 3.11, 3.12 or 3.13 is installed here")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
