# SPDX-License-Identifier: Apache-2.0
"""Records one run of a program from both sides, in a trace folder of its own,
and asks ingero about it. Used by the truth suite and by end_to_end.py."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]


class RunError(Exception):
    """A part of ingero or the program failed: a failure, never a skip."""


class Skip(Exception):
    """The case cannot be planted on this machine."""


def skip_all_unless_possible(build):
    """Exits with 77 and the reason where nothing can be recorded."""
    why = subprocess.run(
        [sys.executable, str(REPO / "tests" / "can_load_bpf.py")],
        capture_output=True, text=True).stdout.strip()
    if not why and not (build / "bin" / "ingero-kprobe").exists():
        why = "ingero-kprobe was not built (clang or libbpf missing)"
    if not why and not (build / "lib" / "libingero_cuda.so").exists():
        why = "libingero_cuda.so was not built"
    if why:
        print(f"SKIP: {why}")
        sys.exit(77)


class RecordedRun:
    """with RecordedRun(build) as run: run.record([...]); run.merge(); ..."""

    def __init__(self, build, keep=None, environment=None):
        self.build = pathlib.Path(build).resolve()
        self.dir = pathlib.Path(keep) if keep else pathlib.Path(
            tempfile.mkdtemp(prefix="ingero-test."))
        self.dir.mkdir(parents=True, exist_ok=True)
        self.keep = keep is not None
        self.traces = self.dir / "traces"
        self.traces.mkdir(exist_ok=True)
        self.kprobe = None
        self.environment = dict(os.environ, INGERO_DIR=str(self.traces),
                                INGERO_DIR_ONLY="1",
                                **(environment or {}))
        self.environment.pop("LD_PRELOAD", None)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop_kprobe()
        if not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    # ---- recording ------------------------------------------------------

    def start_kprobe(self, *extra):
        ready = self.dir / "ready"
        ready.unlink(missing_ok=True)
        self.kprobe_log = open(self.dir / "kprobe.log", "w+")
        self.kprobe = subprocess.Popen(
            [str(self.build / "bin" / "ingero-kprobe"), "--dir",
             str(self.traces), "--ready-file", str(ready), *extra],
            env=self.environment, stdin=subprocess.DEVNULL,
            stdout=self.kprobe_log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 20
        while not ready.exists():
            if self.kprobe.poll() is not None or time.monotonic() > deadline:
                self.stop_kprobe(check=False)
                raise RunError("ingero-kprobe did not get ready: "
                               + self.kprobe_output())
            time.sleep(0.02)

    def kprobe_output(self):
        return (self.dir / "kprobe.log").read_text(errors="replace").strip()

    def stop_kprobe(self, check=True):
        kprobe, self.kprobe = self.kprobe, None
        if kprobe is None:
            return
        if kprobe.poll() is None:
            kprobe.send_signal(signal.SIGINT)
        try:
            status = kprobe.wait(timeout=30)
        except subprocess.TimeoutExpired:
            kprobe.kill()
            kprobe.wait()
            status = "nothing within 30 s of Ctrl-C"
        self.kprobe_log.close()
        if check and status != 0:
            raise RunError(f"ingero-kprobe ended with {status}: "
                           + self.kprobe_output())

    def program(self, command, timeout=120, environment=None):
        """Runs it under the shim. Exit status 77 = cannot be planted here."""
        env = dict(self.environment, **(environment or {}))
        env["LD_PRELOAD"] = str(self.build / "lib" / "libingero_cuda.so")
        try:
            done = subprocess.run([str(x) for x in command], env=env,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True,
                                  timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RunError(f"{command[0]} did not end within {timeout} s")
        if done.returncode == 77:
            raise Skip(done.stderr.strip() or done.stdout.strip())
        if done.returncode != 0:
            raise RunError(f"{command[0]} ended with {done.returncode}: "
                           + done.stderr.strip())
        return done.stdout

    def record(self, command, timeout=120, environment=None):
        self.start_kprobe()
        try:
            return self.program(command, timeout, environment)
        finally:
            self.stop_kprobe()

    # ---- asking ---------------------------------------------------------

    def ingero(self, *args, ok=(0,), timeout=120):
        command = [str(self.build / "bin" / "ingero"), *map(str, args)]
        try:
            done = subprocess.run(command, env=self.environment,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True,
                                  timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RunError(f"ingero {args[0]} did not end within {timeout} s")
        if done.returncode not in ok:
            raise RunError(f"ingero {' '.join(map(str, args))} ended with "
                           f"{done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def merge(self):
        return self.ingero("merge")

    def explain(self):
        text = self.ingero("explain", "--json")
        try:
            return json.loads(text)
        except ValueError as e:
            raise RunError(f"ingero explain --json: not JSON: {e}")

    def dump(self, store, table):
        """Rows of one table as dictionaries."""
        text = self.ingero("dump", store, "--format", "jsonl", "--table",
                           table)
        return [json.loads(line) for line in text.splitlines()]
