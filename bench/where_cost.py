#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `ingero run --where` costs a Python program: the same fixed work, with
and without it in turns, after one run of each that does not count.

  where_cost.py --ingero build/bin/ingero [--rounds 15] [--hz 50] [--threads 1]

Prints for each way the median of the program's own wall and CPU time, the
median of the rounds' ratios, and what a sample took of the sampler's CPU time.
The program makes no CUDA call, so nothing else is recorded.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

# As deep as a model's forward pass: 30 calls, the innermost of which computes.
WORK = """
import json, sys, threading, time

def deep(n):
    if n:
        return deep(n - 1)
    total = 0
    for i in range(2000):
        total += i * i
    return total

def work(rounds):
    for _ in range(rounds):
        deep(30)

def idle():
    while True:
        time.sleep(1)

for _ in range(int(sys.argv[2]) - 1):
    threading.Thread(target=idle, daemon=True).start()
wall, cpu = time.perf_counter(), time.process_time()
work(int(sys.argv[1]))
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--hz", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=int, default=20_000)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ingero-where-cost-", dir="/var/tmp")
    environment = {**os.environ, "INGERO_DIR": folder}
    samples = cpu_ns = 0

    def run(where):
        nonlocal samples, cpu_ns
        done = subprocess.run(
            [options.ingero, "run", "--cuda-only", "-q",
             *([f"--where={options.hz}"] if where else []), "--",
             sys.executable, "-c", WORK, str(options.work),
             str(options.threads)],
            env=environment, capture_output=True, text=True, check=True)
        for name in os.listdir(folder):
            if not name.startswith("code-"):
                continue
            path = os.path.join(folder, name)
            dump = subprocess.run([options.ingero, "dump", path],
                                  capture_output=True, text=True,
                                  check=True).stdout
            samples += len(re.findall(r"^code_read ", dump, re.M))
            cpu_ns += max(map(int, re.findall(r"^samples .* value=(\d+)",
                                              dump, re.M)))
            os.unlink(path)
        return json.loads(done.stdout.splitlines()[0])

    runs = []
    for round_ in range(options.rounds + 1):
        order = [False, True] if round_ % 2 else [True, False]
        pair = {where: run(where) for where in order}
        if round_ == 0:
            samples = cpu_ns = 0
        else:
            runs.append(pair)
    shutil.rmtree(folder)
    for i, clock in enumerate(("wall", "CPU")):
        without = statistics.median(r[False][i] for r in runs)
        with_it = statistics.median(r[True][i] for r in runs)
        ratio = statistics.median(r[True][i] / r[False][i] for r in runs)
        print(f"{clock}: {without:.3f} s without, {with_it:.3f} s with --where="
              f"{options.hz}, median ratio {ratio:.4f}")
    print(f"{samples} samples, {cpu_ns / max(1, samples) / 1000:.1f} us of CPU "
          f"each")


if __name__ == "__main__":
    main()
