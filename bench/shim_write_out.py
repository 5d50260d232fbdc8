#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What write-outs cost, by what the shim recorded of itself.

  shim_write_out.py BUILD_DIR [FOLDER...]

Makes half a million calls per folder (default: /dev/shm and /var/tmp, so tmpfs
and what the disk has), once alone and once while another process has the
stream written back all the time, which makes its pages fault again.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "preload"))
import read_stream  # noqa: E402

CALLS = 500_000


def write_back(folder, stop):
    while not stop.wait(0.005):
        for name in os.listdir(folder):
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fdatasync(fd)
            os.close(fd)


def measure(build, folder, written_back):
    with tempfile.TemporaryDirectory(dir=folder) as dir:
        env = dict(os.environ, INGERO_DIR=dir,
                   LD_PRELOAD=f"{build}/lib/libingero_cuda.so")
        stop = threading.Event()
        helper = threading.Thread(target=write_back, args=(dir, stop))
        if written_back:
            helper.start()
        subprocess.run([f"{build}/bench/shim_bench", "--count", "shim5",
                        str(CALLS)], env=env, check=True)
        stop.set()
        if written_back:
            helper.join()
        s, = read_stream.load_folder(dir)
    assert len(s.calls) == CALLS and not s.lost, (len(s.calls), s.lost)
    (t0, n0), (t1, n1) = [k[1:] for k in (s.knots[0], s.knots[-1])]
    scale = (n1 - n0) / (t1 - t0) / 1e3
    outs = sorted(c[2] * scale for c in s.self_costs if c[0])
    rest = [c[2] * scale for c in s.self_costs if not c[0]]
    print(f"{folder:10} {'written back' if written_back else 'alone':13}"
          f"{len(outs):6} {statistics.median(outs):8.1f} "
          f"{outs[len(outs) * 99 // 100]:8.1f} {outs[-1]:9.1f} "
          f"{sum(outs) / CALLS * 1e3:8.1f} {sum(rest) / CALLS * 1e3:8.1f}")


def main():
    build, *folders = sys.argv[1:]
    print("                        blocks   median      p99       max us  "
          "ns/call    other")
    for folder in folders or ["/dev/shm", "/var/tmp"]:
        for written_back in False, True:
            measure(os.path.abspath(build), folder, written_back)


main()
