#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a real GPU with PyTorch, and that the shim changes nothing.

  real_gpu.py --bin DIR --shim FILE [--libs DIR] [--report FILE] [--only TEXT]

Needs an NVIDIA GPU, PyTorch and root with eBPF; where something is missing it
says so and exits with 77. The last line is "N passed, N failed, N skipped";
before it comes a table of verdicts, as in docs/verdicts.md. DIR holds ingero
and ingero-kprobe; --libs is a folder for their libraries where the machine
lacks them; --report takes the whole report of each case.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, time, torch
torch.manual_seed(0)
d = torch.device("cuda")
mode = sys.argv[1]
if mode == "cold":
    print(torch.ones(4, device=d).sum().item())
    sys.exit()
a = torch.randn(8192, 8192, device=d, dtype=torch.bfloat16)
torch.cuda.synchronize()
t = time.time()
def lasts(): return time.time() - t < 3
def host(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
def small_model():
    m = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(),
                            torch.nn.Linear(64, 1)).to(d)
    return m, torch.optim.SGD(m.parameters(), 0.01), torch.randn(32, 64, device=d)
def step(m, o, x):
    o.zero_grad()
    loss = m(x).square().mean()
    loss.backward()
    o.step()
    return loss
if mode == "gpu_item":
    while lasts(): (a @ a)[0, 0].item()
elif mode == "brief":
    for _ in range(50): (a @ a)[0, 0].item()
elif mode == "gpu_queue":
    while lasts(): a @ a
    torch.cuda.synchronize()
elif mode in ("pageable", "pinned"):
    h = torch.randn(64 * 1024 * 1024)
    if mode == "pinned": h = h.pin_memory()
    t = time.time()
    while lasts(): (h.to(d, non_blocking=mode == "pinned") * 2).sum().item()
elif mode == "tiny":
    x = torch.zeros(16, device=d)
    while lasts():
        for _ in range(50): x = x + 1
        x[0].item()
elif mode == "tiny_graph":
    x = torch.zeros(16, device=d)
    s = torch.cuda.Stream()
    with torch.cuda.stream(s): x + 1
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x
        for _ in range(2000): y = y + 1
    t = time.time()
    while lasts():
        g.replay()
        y[0].item()
elif mode in ("step_item", "step"):
    m, o, x = small_model()
    step(m, o, x).item()  # imports for some seconds
    t = time.time()
    n = 0
    while lasts():
        loss = step(m, o, x)
        n += 1
        if mode == "step_item" or n % 50 == 0: loss.item()
elif mode == "empty_cache":
    while lasts():
        b = [torch.empty(64 << 20, dtype=torch.uint8, device=d) for _ in range(4)]
        b[0][:16].sum().item()
        del b
        torch.cuda.empty_cache()
elif mode == "host":
    while lasts():
        host(0.01)
        (a[:512] @ a)[0, 0].item()
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

# (name, mode of PROGRAM, first findings that are right; "" = none of severity
# HIGH or MEDIUM, how it is run: CPUs, spinners on them, a quota in ms of 100,
# how many at once)
VERDICTS = [
    ("large matmul, `.item()` each", "gpu_item", ["gpu-bound"], {}),
    ("large matmuls, queued", "gpu_queue", ["gpu-bound"], {}),
    ("256 MB from pageable memory a step", "pageable", ["pageable-copy"], {}),
    ("the same from pinned memory", "pinned", ["gpu-bound", ""], {}),
    ("tiny kernels, eager", "tiny", ["launch-bound"], {}),
    ("the same kernels as a CUDA graph", "tiny_graph", ["gpu-bound", ""], {}),
    ("small training step, `.item()` each", "step_item",
     ["host-bound", "launch-bound"], {}),
    ("small training step, `.item()` each 50th", "step",
     ["host-bound", "launch-bound"], {}),
    ("`empty_cache()` each step", "empty_cache", ["alloc-churn"], {}),
    ("10 ms of Python a step", "host", ["host-bound"], {}),
    ("the same, two spinners on its CPU", "host", ["cpu-other-process"],
     {"cpus": "3", "spinners": 2}),
    ("the same, 20 ms of CPU in 100", "host", ["cgroup-quota"],
     {"quota_ms": 20}),
    ("two processes on the GPU", "gpu_queue", ["gpu-bound"], {"at_once": 2}),
    ("a script that runs one kernel", "cold", ["cold-start"], {}),
]
# (workers, CPUs, first findings that are right)
LOADERS = [
    (0, "0-3", ["in-process-loading"]),
    (4, "0-3", ["loader-cpu-bound"]),
    (16, "0-3", ["loader-oversubscribed", "cpu-oversubscribed",
                 "loader-cpu-bound"]),
    (4, "0-15", ["loader-cpu-bound"]),
    (16, "0-15", ["loader-cpu-bound", "loader-oversubscribed"]),
]
# Only that they print the same with and without the shim.
UNCHANGED = ["graph", "compile"]
# (what starts the program, its arguments, how many processes use the GPU)
LAUNCHERS = [
    ("torchrun", ["-m", "torch.distributed.run", "--nproc-per-node", "2"], 2),
    ("accelerate launch", ["-m", "accelerate.commands.launch",
                           "--num_processes", "1", "--num_machines", "1",
                           "--mixed_precision", "no", "--dynamo_backend",
                           "no"], 1),
]


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


@contextlib.contextmanager
def spinners(count, cpus):
    """Processes that are none of the program's, on its CPUs."""
    running = [subprocess.Popen(
        ["taskset", "-c", cpus, sys.executable, "-c", "while True: pass"],
        start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for p in running:
            p.kill()
            p.wait()


@contextlib.contextmanager
def quota(ms):
    """A function for the child to call, or None; a reason where it cannot be."""
    if not ms:
        yield None, ""
        return
    why = []
    for root, files in (
            ("/sys/fs/cgroup/cpu", [("cpu.cfs_period_us", "100000"),
                                    ("cpu.cfs_quota_us", f"{ms}000")]),
            ("/sys/fs/cgroup", [("cpu.max", f"{ms}000 100000")])):
        group = pathlib.Path(root, f"ingero-gpu.{os.getpid()}")
        try:
            group.mkdir()
        except OSError as e:
            why.append(str(e))
            continue
        try:
            for file, text in files:
                (group / file).write_text(text)
            yield lambda: (group / "cgroup.procs").write_text(
                str(os.getpid())), ""
            return
        except OSError as e:
            why.append(str(e))
        finally:
            group.rmdir()
    yield None, "; ".join(why)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--only", default="",
                        help="cases with this text in their name")
    args, tools = arguments(parser)
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

    counts = {"passed": 0, "failed": 0, "skipped": 0}

    def check(name, ok, text):
        counts["passed" if ok else "failed"] += 1
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)

    def start(command, preexec=None):
        env = dict(os.environ, LD_PRELOAD=str(args.shim.resolve()),
                   INGERO_DIR=str(work / "rec"))
        return subprocess.Popen(command, env=env, cwd=work, text=True,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, preexec_fn=preexec)

    def traced(command):
        run = start(command)
        out = run.communicate()[0]
        return run.pid, run.returncode, out

    wanted = []  # (name, pid, right findings, window of --from and --to, note)
    for name, mode, right, how in VERDICTS:
        if args.only not in name:
            continue
        on = ["taskset", "-c", how["cpus"]] if "cpus" in how else []
        command = [*on, sys.executable, "program.py", mode]
        with spinners(how.get("spinners", 0), how.get("cpus", "")), \
                quota(how.get("quota_ms")) as (enter, why_not):
            if why_not:
                counts["skipped"] += 1
                print(f"SKIP {name}: no quota can be set here: {why_not}")
                continue
            runs = [start(command, enter)
                    for _ in range(how.get("at_once", 1))]
            for run in runs:
                run.communicate()
        for run in runs:
            check(name, run.returncode == 0,
                  f"exit status {run.returncode}")
            wanted.append((name, run.pid, right, None, ""))
    for mode in UNCHANGED:
        if args.only not in mode:
            continue
        command = [sys.executable, "program.py", mode]
        pid, status, out = traced(command)
        bare = subprocess.run(command, cwd=work, text=True,
                              capture_output=True)
        check(mode, (status, out) == (bare.returncode, bare.stdout),
              f"with the shim {out.split()} {status}, without "
              f"{bare.stdout.split()} {bare.returncode}")
    loaders = []
    have = len(os.sched_getaffinity(0))
    for workers, cpus, right in LOADERS:
        name = f"DataLoader, {workers} workers, CPUs {cpus}"
        if args.only not in name:
            continue
        if int(cpus.split("-")[1]) >= have:
            counts["skipped"] += 1
            print(f"SKIP {name}: {have} CPUs here")
            continue
        result = work / f"bench.{workers}.{cpus}.json"
        phases = ["direct"] if not loaders else []
        phases.append("loaderN" if workers else "loader0")
        pid, status, out = traced(
            ["taskset", "-c", cpus, sys.executable,
             ROOT / "examples" / "benchmark.py", "--rows", "700000", "--json",
             result, "--phases", ",".join(phases), "--workers",
             str(max(workers, 1))])
        check(name, status == 0, f"exit status {status}")
        loaders.append((name, pid, right, result))
    kprobe.terminate()
    kprobe.wait()

    def explain(*arguments, form="json"):
        return subprocess.run(
            [args.bin / "ingero", "explain", "--format", form, *arguments], env=tools,
            check=True, capture_output=True, text=True).stdout

    subprocess.run([args.bin / "ingero", "merge"], env=tools, check=True,
                   stderr=subprocess.DEVNULL)
    for name, pid, right, result in loaders:
        begin = json.loads(explain("--pid", str(pid)))["trace"]["span"][
            "begin_ns"]
        for at in json.loads(result.read_text())["phases"]:
            window = [f"{(at[k] - begin) / 1e9:.3f}s"
                      for k in ("begin_monotonic_ns", "end_monotonic_ns")]
            direct = at["phase"] == "direct"
            wanted.append((
                "in-memory tensors, sliced" if direct else name, pid,
                ["pageable-copy"] if direct else right,
                ["--from", window[0], "--to", window[1]],
                f"{at['seconds']:.2f} s"))

    for name, launcher, count in LAUNCHERS:
        if subprocess.run([sys.executable, *launcher[:2], "--help"],
                          capture_output=True).returncode != 0:
            counts["skipped"] += 1
            print(f"SKIP {name}: is not installed")
            continue
        folder = work / name.split()[0]
        run = subprocess.run(
            [args.bin / "ingero", "run", "--", sys.executable, *launcher,
             program, "brief"],
            env=dict(tools, INGERO_DIR=str(folder)), capture_output=True,
            text=True)
        folder.mkdir(exist_ok=True)  # where nothing was recorded
        names = subprocess.run(
            [args.bin / "ingero", "query", "--format", "jsonl",
             "SELECT p.name, count(*) AS calls FROM calls AS c JOIN processes "
             "AS p ON p.pid = c.pid WHERE c.class = 'launch' AND c.depth = 0 "
             "GROUP BY p.pid"], env=dict(tools, INGERO_DIR=str(folder)),
            capture_output=True, text=True).stdout.splitlines()
        check(f"ingero run {name}",
              run.returncode == 0 and len(names) == count and
              run.stdout.count("done brief") == count,
              f"exit status {run.returncode}, processes with kernel launches: "
              f"{', '.join(names)}; {run.stderr.strip()[-200:]}")

    rows, whole = [], []
    for name, pid, right, window, note in wanted:
        asked = ["--pid", str(pid), *(window or [])]
        report = json.loads(explain(*asked))
        whole.append(f"==== {name} (pid {pid}) {note}\n" +
                     explain(*asked, form="text"))
        findings = report["findings"]
        got = [f["cause"] for f in findings]
        # Paid once, and longer than these short programs: not what they are
        # about, but for the one that does nothing else.
        steady = ([f for f in findings if f["cause"] != "cold-start"]
                  if "cold-start" not in right else findings)
        first = steady[0] if steady else None
        alarming = [f["cause"] for f in findings
                    if f["severity"] in ("high", "medium")]
        ok = (first and first["cause"] in right or
              "" in right and not alarming)
        check(name, bool(ok), f"findings {got} {note}")
        feeds = [f for f in report["feeding"] if f["process"]]
        idle = [sum(f[k] for f in feeds) for k in
                ("span_ns", "idle_at_least_ns", "idle_at_most_ns")]
        share = ("-" if not idle[0] else
                 f"{100 * idle[1] / idle[0]:.0f} to "
                 f"{100 * idle[2] / idle[0]:.0f} %")
        lost = "-"
        if first:
            lost = (f"{first['lost_ns'] / 1e9:.2f} s" if first["lost_ns"] else
                    f"at most {first['lost_at_most_ns'] / 1e9:.2f} s"
                    if first["lost_at_most_ns"] else "-")
        rows.append((name, f"{idle[0] / 1e9:.2f} s", share,
                     f"{first['cause']} ({first['severity'].upper()})"
                     if first else "-",
                     lost, ", ".join(c for c in got
                                     if c != first["cause"]) or "-"))
    print("\n| program | GPU span | GPU idle | first finding | lost | beside |"
          "\n|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    if args.report:
        args.report.write_text("\n".join(whole))
    print(f"{counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
