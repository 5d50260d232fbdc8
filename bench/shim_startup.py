#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim adds to a process without CUDA: shim_startup.py LIBRARY

Runs /bin/true in batches of 100, without and with the shim by turns, and
prints the lowest CPU time of a batch per process. Budget: 1 ms.
"""
import os
import resource
import sys


def batch(environment, n=100):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(n):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], environment), 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return cpu / n * 1e3, (after.ru_minflt - before.ru_minflt) / n


bare, shim = [], []
for _ in range(12):
    bare.append(batch({}))
    shim.append(batch({"LD_PRELOAD": os.path.abspath(sys.argv[1])}))
for name, runs in ("bare", bare), ("shim", shim):
    print(f"{name} {min(runs)[0]:.3f} ms CPU, {min(r[1] for r in runs):.0f} "
          "page faults")
print(f"added {min(shim)[0] - min(bare)[0]:.3f} ms")
