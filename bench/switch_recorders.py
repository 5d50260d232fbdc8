#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a context switch costs under ingero-kprobe and under perf record.

  sudo bench/switch_recorders.py build/bin/ingero-kprobe [--rounds 9]

`perf bench sched pipe` (two processes, one CPU, a pipe each way) without a
recorder, with `perf record -e sched:sched_switch -a`, and with the companion,
in random order in each round. CPU time of the two processes by rusage, so other
load shows in the caches only. Printed: the median of the rounds' differences to
the bare run, in ns a switch, smallest and largest in brackets. Needs perf.
"""
import argparse
import pathlib
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SWITCHES_PER_LOOP = 2


def pipe_ns(loops):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["taskset", "-c", "0", "perf", "bench", "sched", "pipe",
                    "-l", str(loops)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime + after.ru_stime
             - before.ru_utime - before.ru_stime)
    return cpu_s * 1e9 / (loops * SWITCHES_PER_LOOP)


class Recorder:
    def __init__(self, command, ready):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                sys.exit(f"{command[0]} did not start; try it by hand: "
                         + " ".join(map(str, command)))
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("companion", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--loops", type=int, default=150_000)
    args = p.parse_args()
    if shutil.which("perf") is None:
        sys.exit("perf is not installed (Debian: linux-perf)")
    figures = {"perf record": [], "ingero-kprobe": []}
    bare = []
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            data, ready = folder / "perf.data", folder / "ready"

            def start(name):
                if name == "perf record":
                    return Recorder(["perf", "record", "-q", "-a", "-e",
                                     "sched:sched_switch", "-o", data],
                                    data.exists)
                return Recorder([args.companion, "--dir", folder,
                                 "--ready-file", ready], ready.exists)
            got = {}
            names = ["bare", *figures]
            random.shuffle(names)
            for name in names:
                recorder = start(name) if name != "bare" else None
                time.sleep(0.3)  # perf has no word for "attached"
                got[name] = pipe_ns(args.loops)
                if recorder:
                    recorder.stop()
        bare.append(got["bare"])
        for name, list_ in figures.items():
            list_.append(got[name] - got["bare"])
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    print(f"a switch without a recorder: {statistics.median(bare):.0f} ns")
    for name, list_ in figures.items():
        print(f"{name} adds {statistics.median(list_):.0f} ns "
              f"({min(list_):.0f} to {max(list_):.0f})")


if __name__ == "__main__":
    main()
