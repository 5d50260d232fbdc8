#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim adds to looking a function up: dlsym of a name that is not
CUDA's, of a runtime function, and cuGetProcAddress of a driver function, on the
simulated CUDA. Processes without and with the shim by turns; medians of the
differences of neighbours, and their quartiles.

  bench/shim_lookups.py BUILD [ROUNDS]
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

build = pathlib.Path(sys.argv[1]).resolve()
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20


def lookup(kind, shim, folder):
    env = dict(os.environ, INGERO_DIR=folder, LD_LIBRARY_PATH=str(
        build / "lib" / "fake_cuda"))
    if shim:
        env["LD_PRELOAD"] = str(build / "lib" / "libingero_cuda.so")
    return float(subprocess.run(
        [build / "bench" / "lookups", kind, "500"], env=env, check=True,
        capture_output=True, text=True).stdout)


with tempfile.TemporaryDirectory() as folder:
    print("ns per look-up       bare    added   [quartiles]")
    for kind in ("other", "runtime", "driver"):
        bare, added = [], []
        for _ in range(rounds):
            bare.append(lookup(kind, False, folder))
            added.append(lookup(kind, True, folder) - bare[-1])
        low, middle, high = statistics.quantiles(added, n=4)
        print(f"{kind:16} {statistics.median(bare):8.0f} {middle:8.0f}   "
              f"[{low:.0f}, {high:.0f}]")
