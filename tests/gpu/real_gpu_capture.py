#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Capture on a real GPU: programs do the same with and without the shim, and
every call of theirs is in the trace, those of cuBLAS, cuDNN and NCCL included
(INGERO_APIS=all).

  real_gpu_capture.py --bin DIR --shim FILE [--libs DIR] [--only NAME,...]

Needs an NVIDIA GPU and PyTorch (no root); what a program needs beyond them
(CuPy, JAX) is skipped by name where it is not installed. With no GPU it says so
and exits with 77. The last line is "N passed, N failed, N skipped".
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from real_gpu import arguments  # noqa: E402

COMMON = """
import os, sys, torch
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
d = torch.device("cuda")
"""

# Each prints what must not change. NEEDS: a module to skip without.
PROGRAMS = {
    "eager": COMMON + """
m = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(),
                        torch.nn.Linear(256, 8)).to(d)
o = torch.optim.SGD(m.parameters(), lr=0.1)
for _ in range(50):
    loss = m(torch.ones(32, 64, device=d)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
print(loss.item())
""",
    "compile": COMMON + """
f = torch.compile(lambda x: torch.relu(x) * 2 + 1)
x = torch.arange(4096, device=d) - 2048.0
for _ in range(10): y = f(x)
print(y.sum().item())
""",
    "graph": COMMON + """
x = torch.ones(512, 512, device=d)
f = torch.nn.Linear(512, 512).to(d)
s = torch.cuda.Stream()
g = torch.cuda.CUDAGraph(keep_graph=True)
with torch.no_grad():
    with torch.cuda.stream(s):
        for _ in range(3): f(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(g): y = f(x); z = y + 1
    g.instantiate()
    for _ in range(100): g.replay()
    torch.cuda.synchronize()
import ctypes
count = ctypes.c_size_t(0)
lib = ctypes.CDLL(None)
rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps")
                  if "libcudart" in l][0])
status = rt.cudaGraphGetNodes(ctypes.c_void_p(g.raw_cuda_graph()), None,
                              ctypes.byref(count))
print("nodes", status, count.value, z.sum().item())
""",
    "cublas": COMMON + """
a = torch.arange(512 * 512, device=d).reshape(512, 512).float().sin()
for _ in range(20): b = a @ a
print(b.double().sum().item())
""",
    "cudnn": COMMON + """
c = torch.nn.Conv2d(8, 16, 3).to(d)
x = torch.ones(4, 8, 64, 64, device=d)
for _ in range(20): y = c(x)
print(y.double().sum().item())
""",
    "train": COMMON + """
m = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8),
                        torch.nn.ReLU(), torch.nn.Flatten(),
                        torch.nn.Linear(8 * 30 * 30, 10)).to(d)
o = torch.optim.Adam(m.parameters())
for _ in range(10):
    loss = m(torch.ones(16, 3, 32, 32, device=d)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
print("%.6f" % loss.item())
""",
    "nccl": COMMON + """
import torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555", RANK="0",
                  WORLD_SIZE="1")
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
x = torch.ones(1024, device=d)
for _ in range(5): dist.all_reduce(x)
torch.cuda.synchronize()
print(x.sum().item())
dist.destroy_process_group()
""",
    "errors": COMMON + """
import ctypes
rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps")
                  if "libcudart" in l][0])
torch.ones(1, device=d)
print(rt.cudaMemcpy(None, None, 64, 1), rt.cudaGetLastError(),
      rt.cudaPeekAtLastError(), rt.cudaSetDevice(1000), rt.cudaGetLastError())
try:
    torch.empty(1 << 50, device=d)
except torch.OutOfMemoryError as e:
    print("out of memory")
""",
    "exit_code": COMMON + "torch.ones(1, device=d); sys.exit(7)\n",
    "abort": COMMON + "torch.ones(1, device=d); os.abort()\n",
    "at_exit": COMMON + """
import atexit
x = torch.ones(8, device=d)
atexit.register(lambda: print("at exit", x.sum().item()))
class Late:
    def __del__(self): torch.cuda.synchronize(); os.write(1, b"late\\n")
late = Late()
""",
    "cupy": "import cupy; print(cupy.arange(10).sum())\n",
    "jax": "import jax; print(jax.numpy.arange(10).sum(), jax.devices()[0].platform)\n",
}
NEEDS = {"cupy": "cupy", "jax": "jax"}
# Libraries that PyTorch must have been seen to call. Its cuBLAS calls cuBLASLt.
CALLS = {"cublas": ["cublas"], "cudnn": ["cudnn"], "train": ["cublas", "cudnn"],
         "nccl": ["nccl"]}

LOADER = COMMON + """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 256
    def __getitem__(self, i): return torch.full((16,), float(i))
if __name__ == "__main__":
    workers = int(sys.argv[2])
    torch.ones(1, device=d)
    total = 0.0
    for _ in range(2):
        loader = DataLoader(Data(), batch_size=16, num_workers=workers,
            pin_memory=True,
            multiprocessing_context=sys.argv[1] if workers else None)
        for x in loader: total += x.to(d, non_blocking=True).sum().item()
    print(total)
"""

# Counts of CUPTI against ours, between two marks. Warm before.
PROFILED = COMMON + """
import json, time
from torch.profiler import profile, record_function, ProfilerActivity
a = torch.ones(256, 256, device=d)
h = torch.ones(256, 256).pin_memory()
m = torch.nn.Linear(256, 256).to(d)
f = torch.compile(lambda x: torch.relu(x) * 2 + 1)
def work():
    for _ in range(20):
        y = f(m(a)) @ a
        a.copy_(h, non_blocking=True)
        y.zero_()
        y.sum().item()
    torch.cuda.synchronize()
work(); work()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
    work()
    torch.cuda.synchronize()
    begin = time.monotonic_ns()
    with record_function("region"): work()
    end = time.monotonic_ns()
p.export_chrome_trace("trace.json")
events = json.load(open("trace.json"))["traceEvents"]
region = [e for e in events if e.get("name") == "region" and
          e.get("cat") == "user_annotation"][0]
counts = {}
for e in events:
    if e.get("cat") in ("cuda_runtime", "cuda_driver") and \\
       region["ts"] <= e["ts"] <= region["ts"] + region["dur"]:
        counts[e["name"]] = counts.get(e["name"], 0) + 1
print(json.dumps({"begin": begin, "end": end, "counts": counts}))
"""


def kind_of(name):
    """What a call does, for the comparison with the profiler."""
    name = name.lstrip("_")
    for kind, pattern in [
            ("launch", r"^cu(da)?Launch(Cooperative)?Kernel"),
            ("graph launch", r"^cu(da)?GraphLaunch"),
            ("copy", r"^cu(da)?Memcpy"), ("set", r"^cu(da)?Memset"),
            ("sync", r"^cu(da)?(Stream|Device|Ctx|Event)Synchronize"),
            ("event", r"^cu(da)?EventRecord")]:
        if re.match(pattern, name):
            return kind
    return None


def api_of(name):
    """Which library a function belongs to."""
    for api in ("nccl", "cublasLt", "cublas", "cudnn"):
        if name.startswith(api):
            return api
    return "runtime" if name.lstrip("_").startswith("cuda") else "driver"


class Runner:
    def __init__(self, args, tools):
        self.args, self.tools = args, tools
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="ingero-capture."))
        self.counts = collections.Counter()

    def result(self, name, ok, text):
        self.counts["passed" if ok else "failed"] += 1
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)

    def run(self, code, arguments=(), trace=None):
        script = self.work / "program.py"
        script.write_text(code)
        environment = dict(os.environ)
        if trace:
            environment.update(LD_PRELOAD=str(self.args.shim.resolve()),
                               INGERO_DIR=str(trace), INGERO_APIS="all")
        p = subprocess.run([sys.executable, str(script), *arguments],
                           env=environment, cwd=self.work, text=True,
                           capture_output=True, timeout=280)
        return p.returncode, p.stdout, p.stderr

    def calls(self, trace):
        """Rows of the calls table of what was recorded there."""
        store = trace / "store"
        subprocess.run([self.args.bin / "ingero", "merge", "--dir", trace,
                        "-o", store], env=self.tools, check=True,
                       capture_output=True)
        text = subprocess.run(
            [self.args.bin / "ingero", "dump", store, "--table", "calls",
             "--format", "jsonl"], env=self.tools, check=True,
            capture_output=True, text=True).stdout
        return [json.loads(line) for line in text.splitlines()]

    def same(self, name, code, arguments=()):
        trace = self.work / f"rec-{name}"
        bare = self.run(code, arguments)
        ours = self.run(code, arguments, trace)
        calls = self.calls(trace) if trace.exists() else []
        by_api = collections.Counter(api_of(c["name"]) for c in calls)
        missing = [a for a in ["runtime or driver", *CALLS.get(name, [])]
                   if not any(by_api[x] for x in a.split(" or "))]
        same = ours[:2] == bare[:2]
        self.result(
            name, same and not missing,
            f"exit {ours[0]}, {' '.join(ours[1].split()) or 'no output'}; calls"
            + "".join(f" {api} {n}" for api, n in sorted(by_api.items()))
            + (f"; not one of {', '.join(missing)}" if missing else "")
            + ("" if same else
               f"; without: {bare[0]}, {' '.join(bare[1].split())}; "
               + ours[2].strip()[-200:]))

    def profiler(self):
        trace = self.work / "rec-profiler"
        status, out, error = self.run(PROFILED, (), trace)
        if status != 0:
            self.result("profiler", False, error.strip()[-300:])
            return
        told = json.loads(out)
        theirs = collections.Counter()
        for name, count in told["counts"].items():
            if kind_of(name):
                theirs[kind_of(name)] += count
        ours, names = collections.Counter(), collections.Counter()
        for c in self.calls(trace):
            if not told["begin"] <= c["begin_ns"] < told["end"]:
                continue
            if c["depth"] == 0 and kind_of(c["name"]):
                ours[kind_of(c["name"])] += 1
                names[c["name"]] += 1
        self.result("profiler", ours == theirs,
                    f"ours {dict(ours)}, torch.profiler's {dict(theirs)}; by "
                    f"name {dict(names)}, {told['counts']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args, tools = arguments(parser)
    only = [x for x in args.only.split(",") if x]
    run = Runner(args, tools)
    for name, code in PROGRAMS.items():
        if only and name not in only:
            continue
        module = NEEDS.get(name)
        if module and subprocess.run([sys.executable, "-c", f"import {module}"],
                                     capture_output=True).returncode != 0:
            run.counts["skipped"] += 1
            print(f"SKIP {name}: no module {module} here", flush=True)
            continue
        run.same(name, code)
    for start in ("fork", "forkserver", "spawn"):
        for workers in ("0", "4"):
            name = f"loader-{start}-{workers}"
            if (not only or "loader" in only) and (workers != "0" or
                                                   start == "fork"):
                run.same(name, LOADER, (start, workers))
    if not only or "profiler" in only:
        run.profiler()
    print(f"{run.counts['passed']} passed, {run.counts['failed']} failed, "
          f"{run.counts['skipped']} skipped")
    return 1 if run.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
