#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a real GPU with PyTorch, and that the shim changes nothing.

  real_gpu.py --bin DIR --shim FILE [--libs DIR]

Needs an NVIDIA GPU, PyTorch and root with eBPF; where something is missing it
says so and exits with 77. The last line is "N passed, N failed, N skipped".
DIR holds ingero and ingero-kprobe; --libs is a folder for their libraries
where the machine lacks them.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Small programs, each with the cause that must come first. None: only that it
# prints the same with and without the shim is checked.
PROGRAM = """
import sys, time, torch
torch.manual_seed(0)
d = torch.device("cuda")
a = torch.randn(8192, 8192, device=d, dtype=torch.bfloat16)
torch.cuda.synchronize()
t = time.time()
mode = sys.argv[1]
if mode == "gpu_item":
    while time.time() - t < 3: (a @ a)[0, 0].item()
elif mode == "gpu_queue":
    while time.time() - t < 3: a @ a
    torch.cuda.synchronize()
elif mode == "pageable":
    h = torch.randn(64 * 1024 * 1024)
    t = time.time()
    while time.time() - t < 3: (h.to(d) * 2).sum().item()
elif mode == "tiny":
    x = torch.zeros(16, device=d)
    while time.time() - t < 3:
        for _ in range(50): x = x + 1
        x[0].item()
elif mode == "graph":
    x = torch.randn(512, 512, device=d)
    f = torch.nn.Linear(512, 512).to(d)
    s = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(s):
            for _ in range(3): f(x)
        torch.cuda.synchronize()
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g): y = f(x)
        for _ in range(100): g.replay()
        torch.cuda.synchronize()
        print(bool(torch.equal(y, f(x))))
elif mode == "compile":
    m = torch.compile(lambda x: torch.relu(x) * 2 + 1)
    x = torch.randn(4096, device=d)
    for _ in range(20): y = m(x)
    print(bool(torch.allclose(y, torch.relu(x) * 2 + 1)), y.sum().item())
print("done", mode)
"""
CASES = [("gpu_item", "gpu-bound"), ("gpu_queue", "gpu-bound"),
         ("pageable", "pageable-copy"), ("tiny", "launch-bound"),
         ("graph", None), ("compile", None)]


def skip(why):
    print(f"SKIP: {why}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def arguments(parser=None):
    """(arguments, environment of our tools); exits where there is no GPU."""
    p = parser or argparse.ArgumentParser()
    p.add_argument("--bin", type=pathlib.Path, required=True)
    p.add_argument("--shim", type=pathlib.Path, required=True)
    p.add_argument("--libs", type=pathlib.Path)
    args = p.parse_args()
    probe = subprocess.run(
        [sys.executable, "-c",
         "import torch; assert torch.cuda.is_available()"],
        capture_output=True, text=True)
    if probe.returncode != 0:
        skip("no PyTorch that sees a CUDA device")
    tools = dict(os.environ)
    if args.libs:
        tools["LD_LIBRARY_PATH"] = str(args.libs.resolve())
    return args, tools


def main():
    args, tools = arguments()
    if os.geteuid() != 0:
        skip("not root, so the companion cannot record")

    work = pathlib.Path(tempfile.mkdtemp(prefix="ingero-gpu."))
    tools["INGERO_DIR"] = str(work / "rec")
    program = work / "program.py"
    program.write_text(PROGRAM)
    kprobe = subprocess.Popen(
        [args.bin / "ingero-kprobe", "--dir", work / "rec", "--ready-file",
         work / "ready"], env=tools, stderr=subprocess.PIPE, text=True)
    while not (work / "ready").exists():
        if kprobe.poll() is not None:
            skip("ingero-kprobe did not start: " +
                 kprobe.stderr.read().strip().splitlines()[-1])
        time.sleep(0.05)

    counts = {"passed": 0, "failed": 0}

    def check(name, ok, text):
        counts["passed" if ok else "failed"] += 1
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)

    def traced(command, name):
        env = dict(os.environ, LD_PRELOAD=str(args.shim.resolve()),
                   INGERO_DIR=str(work / "rec"))
        run = subprocess.Popen(command, env=env, cwd=work, text=True,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        out = run.communicate()[0]
        return run.pid, run.returncode, out

    expected = {}
    for mode, cause in CASES:
        command = [sys.executable, "program.py", mode]
        pid, status, out = traced(command, mode)
        if cause:
            expected[pid] = (mode, cause)
            check(mode, status == 0, f"exit status {status}")
        else:
            bare = subprocess.run(command, cwd=work, text=True,
                                  capture_output=True)
            check(mode, (status, out) == (bare.returncode, bare.stdout),
                  f"with the shim {out.split()} {status}, without "
                  f"{bare.stdout.split()} {bare.returncode}")
    bench = work / "bench.json"
    pid, status, out = traced(
        ["taskset", "-c", "0-3", sys.executable,
         ROOT / "examples" / "benchmark.py", "--rows", "1500000", "--json",
         bench], "benchmark")
    check("benchmark", status == 0, f"exit status {status}")
    kprobe.terminate()
    kprobe.wait()

    def explain(*arguments):
        text = subprocess.run(
            [args.bin / "ingero", "explain", "--json", *arguments], env=tools,
            check=True, capture_output=True, text=True).stdout
        return json.loads(text)

    subprocess.run([args.bin / "ingero", "merge"], env=tools, check=True,
                   stderr=subprocess.DEVNULL)
    for case_pid, (mode, cause) in expected.items():
        report = explain("--pid", str(case_pid))
        got = [f["cause"] for f in report["findings"]]
        check(mode, got[:1] == [cause], f"findings {got}")
    phases = json.loads(bench.read_text())["phases"]
    begin = explain("--pid", str(pid))["trace"]["span"]["begin_ns"]
    for phase, cause in [("direct", "pageable-copy"),
                         ("loader0", "in-process-loading"),
                         ("loaderN", "loader-cpu-bound")]:
        at = next(x for x in phases if x["phase"] == phase)
        window = [f"{(at[k] - begin) / 1e9:.3f}s"
                  for k in ("begin_monotonic_ns", "end_monotonic_ns")]
        report = explain("--pid", str(pid), "--from", window[0], "--to",
                         window[1])
        got = [f["cause"] for f in report["findings"]]
        lost = report["findings"][0]["lost_ns"] / 1e9 if got else 0
        check(phase, got[:1] == [cause],
              f"{at['seconds']:.2f} s, findings {got}, first {lost:.2f} s")
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
