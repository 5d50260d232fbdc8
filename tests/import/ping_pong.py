#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of known spins and sleeps: `ping_pong.py ROUNDS [TRACE]`.

Two processes in turn: the one spins SPIN_MS and wakes the other, which sleeps
SLEEP_MS, spins REPLY_MS and answers. Prints {"ping": pid, "pong": pid} and the
times that each measured itself. TRACE: what the first one did as a trace of
torch.profiler, on CLOCK_REALTIME: its spins as launches, its waits as syncs."""
import json
import os
import sys
import time

SPIN_MS, SLEEP_MS, REPLY_MS = 4, 3, 2


def spin(ms):
    """Until so much CPU time was used."""
    end = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < end:
        pass


def pong(asked, answer):
    slept = 0
    while os.read(asked, 1) == b"?":
        begin = time.monotonic_ns()
        time.sleep(SLEEP_MS / 1000)
        slept += time.monotonic_ns() - begin
        spin(REPLY_MS)
        os.write(answer, b"!")
    os.write(answer, slept.to_bytes(8, "little"))
    os._exit(0)


def main(rounds, trace):
    asked, ask = os.pipe()
    answered, answer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask)
        pong(asked, answer)
    pid = os.getpid()
    events = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0,
               "args": {"name": "ping_pong"}}]
    base = time.time_ns()
    base -= base % 1000

    def event(cat, name, begin, end, **more):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid,
                       "tid": pid, "ts": (begin - base) / 1000,
                       "dur": (end - begin) / 1000, "args": more})
    waited = 0
    for i in range(rounds):
        begin = time.time_ns()
        spin(SPIN_MS)
        spun = time.time_ns()
        os.write(ask, b"?")
        os.read(answered, 1)
        end = time.time_ns()
        waited += end - spun
        event("cuda_runtime", "cudaLaunchKernel", begin, spun,
              correlation=2 * i + 1)
        event("kernel", "k", spun, end - 1000, device=0, stream=7,
              correlation=2 * i + 1)
        event("cuda_runtime", "cudaStreamSynchronize", spun, end,
              correlation=2 * i + 2)
    os.close(ask)
    slept = int.from_bytes(os.read(answered, 8), "little")
    os.waitpid(child, 0)
    if trace:
        with open(trace, "w") as f:
            f.write('{"schemaVersion": 1, "baseTimeNanoseconds": %d,\n'
                    '"traceEvents": [\n%s\n]}\n' %
                    (base, ",\n".join(json.dumps(e) for e in events)))
    print(json.dumps({"ping": pid, "pong": child, "waited_ns": waited,
                      "slept_ns": slept,
                      "ping_cpu_ns": time.process_time_ns()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
