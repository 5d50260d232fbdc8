#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What asking a store costs, by the number of its events.

  ask_bench.py --ingero I [--runs N] [--json FIGURES.json] STORE...

Each command is a process of its own (what merge stored is all there is
beforehand; the file is in the page cache, as after a merge). Printed are the
median and the worst time of N runs, and the most memory (VmHWM).
bench/plot_ask.py draws the figures.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time

BUDGETS_S = {"explain": 2, "explain 10 s": 0.2, "stats": 0.2}


def run(args):
    begin = time.monotonic()
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(args)}: status {child.returncode}")
    return (time.monotonic() - begin, usage.ru_maxrss / 1024,
            usage.ru_utime + usage.ru_stime)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("stores", nargs="+")
    options = parser.parse_args()
    # The memory of a child that has not run exec yet is this process's.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    results = {}
    for store in options.stores:
        info = json.loads(subprocess.run(
            [options.ingero, "store", "info", store, "--json"], check=True,
            capture_output=True).stdout)
        length = (info["span"]["end_ns"] - info["span"]["begin_ns"]) / 1e9
        at = length / 2
        window = ["--from", f"{at:.3f}s", "--to", f"{at + 10:.3f}s"]
        for name, args in (("explain", ["explain"]),
                           ("explain 10 s", ["explain", *window]),
                           ("stats", ["stats"]),
                           ("stats 10 s", ["stats", *window]),
                           ("query starvation",
                            ["query", "SELECT * FROM starvation"])):
            times = [run([options.ingero, args[0], "--db", store, *args[1:]])
                     for _ in range(options.runs)]
            wall = sorted(t[0] for t in times)
            results.setdefault(name, []).append(
                (info["events"], wall[len(wall) // 2], wall[-1],
                 max(t[1] for t in times), sorted(t[2] for t in times)[
                     len(times) // 2]))
            print(f"{info['events']:>13,} events, {length:7.0f} s, "
                  f"{info['bytes_per_event']:.2f} bytes each: {name:<17} "
                  f"{results[name][-1][1]:.3f} s (worst "
                  f"{results[name][-1][2]:.3f}, CPU {results[name][-1][4]:.3f}"
                  f"), {results[name][-1][3]:.0f} MiB", flush=True)
    if options.json:
        questions = []
        for name, rows in results.items():
            questions.append({"name": name, "points": [
                {"events": r[0], "wall_s": r[1], "worst_s": r[2],
                 "cpu_s": r[4], "mib": r[3]} for r in rows]})
            if name in BUDGETS_S:
                questions[-1]["budget_s"] = BUDGETS_S[name]
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"questions": questions}, f, indent=1)


if __name__ == "__main__":
    main()
