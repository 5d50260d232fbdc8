#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording costs, ingero beside what people would use instead, measured
in one run on a machine with a GPU.

  compare.py --build DIR [--rounds N] [--seconds S] [--json FILE] ...
  compare.py --build DIR --pack FOLDER   all that is needed there, to be copied

How: a round starts fresh processes, one for each variant, all alike but for
what records them, and keeps them. They work in turns: a block of some ms in
each, in random order, one at a time, on the same CPU where the work is one
thread. What is compared are blocks of one turn, so that clock rates and load
drop out. A round's figure is the median of its differences; fresh processes in
each round let what differs from process to process (addresses, pages) show as
spread. Printed: the median of the rounds' figures and the range that holds the
true one with the probability given (order statistics, no assumption about its
shape). "nothing, again" is a second process without a recorder: what its
difference is not, no other's is.

A variant of a process could be switched on and off within it only with CUPTI;
so all are separate processes, the same for everybody. The companion sees the
whole machine: within each round it runs for a slice of time between two without
it, and is compared with their mean.

Each recorder must have recorded every call that was made (of PyTorch: some).
Otherwise the status is 1. Missed goals are printed, and are no failure.
"""
import argparse
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# name: (work of one block, unit, what it is, seconds relative to --seconds)
NATIVE = {
    "launch": (400, "call", "cudaLaunchKernel, empty kernel, synchronised "
                            "every 200", 1.5),
    "copy": (400, "call", "cudaMemcpyAsync, 64 bytes, synchronised every 200",
             1.5),
    "query": (2000, "call", "cudaStreamQuery", 1),
}
TORCH = {
    "small": (200, "op", "PyTorch, eager addition of 16 numbers", 1),
    "train": (5, "step", "training step of a small transformer, launch-bound",
              3),
    "loader": (262_144, "row", "examples/benchmark.py, DataLoader with 4 "
                               "workers", 4),
}
WORKLOADS = {**NATIVE, **TORCH}
# So few blocks fit in a round that those to be judged take part in every turn
# and the others in rotation.
SLOW = {"loader", "train"}

BARE, AGAIN, SHIM, BOTH = "bare", "bare-again", "shim", "shim+companion"
RUNTIME, UPROBE = "cupti-runtime", "uprobe"
TITLES = {
    BARE: "nothing",
    AGAIN: "nothing, again",
    SHIM: "shim",
    BOTH: "shim + companion",
    "cupti-callbacks": "CUPTI callbacks (runtime)",
    RUNTIME: "CUPTI activity (runtime)",
    "cupti-kernels": "CUPTI activity (runtime, kernels)",
    "torch-profiler": "torch.profiler",
    "nsys": "nsys",
    UPROBE: "uprobe + uretprobe",
}
EVERY_TURN = (BARE, AGAIN, SHIM)
# Of the calls made by cuda_calls, those that belong to its blocks.
BLOCK_CALLS = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamQuery",
               "cudaStreamSynchronize")
# What a tool that traces programs with uprobes would watch.
PROBED = BLOCK_CALLS + (
    "__cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpy", "cudaMalloc",
    "cudaFree", "cudaMemsetAsync", "cudaDeviceSynchronize", "cudaEventRecord",
    "cudaEventQuery", "cudaEventSynchronize")
START_SECONDS, BLOCK_SECONDS = 60, 40


class Problem(Exception):
    """A variant or a part cannot be measured; the text says why."""


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def last_line(path):
    lines = pathlib.Path(path).read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


# ---- what is there ----------------------------------------------------------

class Machine:
    """Paths of all that takes part; `without` says why a variant does not."""

    def __init__(self, args):
        build = args.build.resolve()
        self.shim = build / "lib/libingero_cuda.so"
        self.ingero = build / "bin/ingero"
        self.kprobe = build / "bin/ingero-kprobe"
        gpu = build / "bench/gpu"
        self.cuda_calls = gpu / "cuda_calls"
        self.cupti_tool = gpu / "cupti_tool.so"
        self.uprobe_tool = gpu / "uprobe_tool"
        self.uprobe_object = gpu / "uprobe.bpf.o"
        self.simulated = args.simulated
        for path in (self.shim, self.cuda_calls):
            if not path.exists():
                raise Problem(f"there is no {path}; build it (ninja "
                              f"{path.stem.removeprefix('lib')}), or name "
                              "another folder with --build")
        # Libraries that the machine lacks, for our tools alone.
        self.tools = dict(os.environ)
        if (build / "libs").is_dir():
            self.tools["LD_LIBRARY_PATH"] = str(build / "libs")
        if args.simulated:
            self.cudart = build / "lib/fake_cuda/libcudart.so.13"
            if not self.cudart.exists():
                raise Problem(f"there is no {self.cudart}; build the tests")
        else:
            self.cudart = self.find("libcudart.so.1[23]*")
        self.cupti = None if args.simulated else self.find("libcupti.so.1[23]*")
        self.nsys = shutil.which("nsys") or next(
            (str(p) for p in sorted(pathlib.Path("/opt/nvidia").glob(
                "nsight*/*/host/target-linux-x64/nsys"))), None)
        self.torch = self.ask_torch()
        self.without = self.what_is_missing()

    @staticmethod
    def find(name):
        folders = []
        for site in sys.path:
            folders += sorted(pathlib.Path(site or ".").glob("nvidia/*/lib"))
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
            if folder:
                folders.append(pathlib.Path(folder))
        folders += [pathlib.Path("/usr/local/cuda/lib64"),
                    pathlib.Path("/usr/local/cuda/extras/CUPTI/lib64")]
        for folder in folders:
            for path in sorted(folder.glob(name)):
                return path
        return None

    @staticmethod
    def ask_torch():
        run = subprocess.run(
            [sys.executable, "-c",
             "import torch; print(torch.__version__, torch.cuda.is_available()"
             " and torch.cuda.get_device_name(0).replace(' ', '_'))"],
            capture_output=True, text=True)
        return run.stdout.split() if run.returncode == 0 else None

    def what_is_missing(self):
        missing = {}
        root = os.geteuid() == 0
        for name in ("cupti-callbacks", RUNTIME, "cupti-kernels"):
            if self.simulated:
                missing[name] = "CUPTI needs a real GPU"
            elif not self.cupti_tool.exists():
                missing[name] = ("cupti_tool.so was not built: no CUPTI "
                                 "headers (bench/README.md)")
            elif not self.cupti:
                missing[name] = "no libcupti here"
        if self.simulated:
            missing["nsys"] = missing["torch-profiler"] = "needs a real GPU"
        elif not self.nsys:
            missing["nsys"] = "not found in PATH or in Nsight Compute's folder"
        if not self.uprobe_tool.exists():
            missing[UPROBE] = "uprobe_tool was not built (clang or libbpf)"
        elif not root:
            missing[UPROBE] = "needs root"
        if not self.kprobe.exists():
            missing[BOTH] = "ingero-kprobe was not built (clang or libbpf)"
        elif not root:
            missing[BOTH] = "ingero-kprobe needs root"
        return missing

    def describe(self):
        driver = pathlib.Path("/proc/driver/nvidia/version")
        model = re.search(r"^model name\s*: (.*)$",
                          pathlib.Path("/proc/cpuinfo").read_text(), re.M)
        gpu = None
        if shutil.which("nvidia-smi") and not self.simulated:
            gpu = subprocess.run(
                ["nvidia-smi", "--query-gpu=name,driver_version",
                 "--format=csv,noheader"], capture_output=True,
                text=True).stdout.strip().splitlines()[:1]
        return {
            "gpu": ("simulated" if self.simulated else
                    gpu[0] if gpu else None),
            "driver": (driver.read_text().splitlines()[0]
                       if driver.exists() else None),
            "cpu": model.group(1) if model else platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "torch": self.torch[0] if self.torch else None,
            "cudart": str(self.cudart), "cupti": str(self.cupti),
            "nsys": self.nsys}


# ---- processes --------------------------------------------------------------

class Worker:
    """A process that works on request, and what records it."""

    def __init__(self, machine, variant, program, folder):
        self.machine, self.variant = machine, variant
        self.folder = folder
        folder.mkdir(parents=True)
        self.result = folder / "result"
        self.traces = folder / "traces"
        path = folder / "socket"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        env = dict(os.environ, BENCH_RESULT=str(self.result))
        prefix = []
        if variant == SHIM:
            env.update(LD_PRELOAD=str(machine.shim),
                       INGERO_DIR=str(self.traces))
        elif variant.startswith("cupti-"):
            env.update(CUDA_INJECTION64_PATH=str(machine.cupti_tool),
                       BENCH_CUPTI=str(machine.cupti),
                       BENCH_CUPTI_MODE=variant.removeprefix("cupti-"))
        elif variant == "torch-profiler":
            env["BENCH_TORCH_PROFILER"] = "1"
        elif variant == "nsys":
            prefix = [machine.nsys, "profile", "--trace=cuda", "--sample=none",
                      "--cpuctxsw=none", "--force-overwrite=true",
                      f"--output={folder / 'nsys'}"]
        if program == "cuda_calls":
            command = [machine.cuda_calls, path, machine.cudart]
        else:
            command = [sys.executable, HERE / "torch_worker.py", path]
        self.log = folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, *command], env=env, cwd=folder, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.lines = self.uprobes = None
        self.records = ""  # what the recorder says that it has

    def connect(self):
        end = time.monotonic() + START_SECONDS
        self.listener.settimeout(0.2)
        while True:
            try:
                connection, _ = self.listener.accept()
                break
            except TimeoutError:
                if self.process.poll() is not None:
                    raise Problem(f"ended with {self.process.returncode}: "
                                  f"{last_line(self.log)}") from None
                if time.monotonic() > end:
                    raise Problem(f"did not start within {START_SECONDS} s: "
                                  f"{last_line(self.log)}") from None
        connection.settimeout(BLOCK_SECONDS)
        self.lines = connection.makefile("rw", buffering=1)
        connection.close()
        self.pid = int(self.answer("ready")[0])
        if self.variant == UPROBE:
            self.attach()

    def attach(self):
        m = self.machine
        maps = pathlib.Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        mapped = next((line.split()[-1] for line in maps
                       if "libcudart" in line), None)
        if not mapped:
            raise Problem("no libcudart in its maps, nothing to probe")
        with open(self.log, "a", encoding="utf-8") as log:
            self.uprobes = subprocess.Popen(
                [m.uprobe_tool, m.uprobe_object, str(self.pid), mapped,
                 *PROBED], env=m.tools, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True)
        if not self.uprobes.stdout.readline().startswith("ready"):
            raise Problem(last_line(self.log))

    def answer(self, word):
        try:
            line = self.lines.readline()
        except OSError:
            raise Problem(f"no answer within {BLOCK_SECONDS} s") from None
        first, _, rest = line.strip().partition(" ")
        if first != word:
            raise Problem(line.strip() or
                          f"it ended: {last_line(self.log)}")
        return rest.split()

    def ask(self, request, word):
        self.lines.write(request + "\n")
        return self.answer(word)

    def block(self, workload, count):
        return int(self.ask(f"{workload} {count}", "ns")[0]) / count

    def finish(self):
        """{what was made}; afterwards self.records is what was recorded."""
        made = dict(x.split("=") for x in self.ask("quit", "made"))
        if self.uprobes:
            self.records = self.uprobes.communicate()[0].strip()
        try:
            self.process.wait(2 if self.variant == "nsys" else 60)
        except subprocess.TimeoutExpired:
            if self.variant != "nsys":  # nsys tries to make a report
                raise Problem("it does not end") from None
        if self.variant == "nsys":
            sizes = [p.stat().st_size for p in self.folder.glob("nsys*")]
            self.records = f"bytes {max(sizes, default=0)}"
        elif self.result.exists():
            self.records = self.result.read_text().strip()
        return made

    def end(self):
        self.listener.close()
        for process in (self.process, self.uprobes):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        # Helpers of a profiler outlive it. They are told by our folder.
        mark = f"BENCH_RESULT={self.result}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


class Companion:
    def __init__(self, machine, folder):
        self.machine, self.folder = machine, folder
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        log = self.folder / "log"
        with open(log, "a", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [self.machine.kprobe, "--dir", self.folder / "traces",
                 "--ready-file", ready, "--quiet"], env=self.machine.tools,
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        while not ready.exists():
            if self.process.poll() is not None:
                raise Problem(last_line(log))
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


# ---- figures ----------------------------------------------------------------

def interval(values):
    """Median, and the range that holds the true one: [k-th smallest, k-th
    largest], with the largest k that keeps 95 %."""
    values = sorted(values)
    n = len(values)
    tail = total = 0.5 ** n
    k = 1
    while k < n // 2:
        total *= (n - k + 1) / k
        if 1 - 2 * (tail + total) < 0.95:
            break
        tail += total
        k += 1
    return {"median": statistics.median(values), "low": values[k - 1],
            "high": values[n - k], "probability": round(1 - 2 * tail, 4)}


class Measurement:
    """Of one workload: a figure per round and variant."""

    def __init__(self):
        self.bare, self.turns = [], 0
        self.added, self.ratio = {}, {}

    def add(self, turns, with_companion):
        """turns: [{variant: ns}] without the companion, before and after."""
        both = [t for slice_ in turns for t in slice_]
        self.turns += len(both)
        bare = statistics.median(t[BARE] for t in both if BARE in t)
        self.bare.append(bare)
        for variant in {v for t in both for v in t} - {BARE}:
            pairs = [(t[variant], t[BARE]) for t in both
                     if variant in t and BARE in t]
            if pairs:
                self.put(variant, statistics.median(a - b for a, b in pairs),
                         statistics.median(a / b for a, b in pairs))
        if with_companion:
            around = statistics.mean(
                statistics.median(t[BARE] for t in slice_)
                for slice_ in turns if slice_)
            got = statistics.median(t[SHIM] for t in with_companion)
            self.put(BOTH, got - around, got / around)

    def put(self, variant, added, ratio):
        self.added.setdefault(variant, []).append(added)
        self.ratio.setdefault(variant, []).append(100 * (ratio - 1))


class Comparison:
    def __init__(self, machine, args):
        self.machine, self.args = machine, args
        self.work = pathlib.Path(tempfile.mkdtemp(
            prefix="ingero-compare.", dir=args.work))
        self.random = random.Random(1)
        self.measured = {w: Measurement() for w in args.workloads}
        self.skipped = {}  # (program or workload, variant): why
        self.records = {}  # (program, variant): [text per round]
        self.failures = []
        self.notes = set()  # what a figure does not mean
        self.dropped = []  # workers that failed in this round

    def variants_of(self, program):
        names = [v for v in TITLES if v != BOTH and v in self.args.variants and
                 (v != "torch-profiler" or program == "torch")]
        for name in list(names):
            if name in self.machine.without:
                self.skipped[program, name] = self.machine.without[name]
            if (program, name) in self.skipped:
                names.remove(name)
        return names

    def run(self):
        programs = [("cuda_calls", NATIVE), ("torch", TORCH)]
        begin = time.monotonic()
        for round_number in range(self.args.rounds):
            for program, all_workloads in programs:
                workloads = [w for w in all_workloads
                             if w in self.args.workloads]
                if not workloads:
                    continue
                if time.monotonic() - begin > self.args.limit:
                    say(f"--limit is over: {round_number} whole rounds")
                    return
                say(f"round {round_number + 1} of {self.args.rounds}, "
                    f"{', '.join(workloads)}")
                self.round(program, workloads, round_number)

    def round(self, program, workloads, number):
        folder = self.work / f"{number}-{program}"
        workers = {}
        try:
            for variant in self.variants_of(program):
                workers[variant] = Worker(self.machine, variant, program,
                                          folder / variant)
            for variant in list(workers):
                self.guarded(program, workers, variant, Worker.connect)
            for workload in workloads:
                self.measure(program, workload, workers, number)
            for variant in list(workers):
                made = self.guarded(program, workers, variant, Worker.finish)
                if made is not None:
                    self.check(program, workers[variant], made)
        finally:
            for worker in list(workers.values()) + self.dropped:
                worker.end()
            self.dropped.clear()
            shutil.rmtree(folder, ignore_errors=True)

    def guarded(self, where, workers, variant, what, *args):
        """None where it failed: that variant takes no further part, in this
        round in nothing and then not in this program or workload."""
        try:
            return what(workers[variant], *args)
        except (Problem, OSError) as e:
            if variant in (BARE, SHIM):
                raise Problem(f"{TITLES[variant]}: {e}") from None
            say(f"{TITLES[variant]}: {e}")
            self.skipped[where, variant] = str(e)
            self.dropped.append(workers.pop(variant))
            return None

    def measure(self, program, workload, workers, number):
        cpus = sorted(os.sched_getaffinity(0))
        one = program == "cuda_calls" or workload == "small"
        count = max(1, int(WORKLOADS[workload][0] * self.args.block))
        if workload in NATIVE:
            count = max(200, count // 200 * 200)
        # All is loaded and allocated before a thread is tied to a CPU, so that
        # threads of recorders and of PyTorch are not.
        everywhere = "pin " + ",".join(map(str, cpus))
        for variant in list(workers):
            if (workload, variant) in self.skipped:
                continue
            for what in ((Worker.ask, everywhere, "ok"),
                         (Worker.block, workload, count),
                         (Worker.ask, f"pin {cpus[-1]}" if one else everywhere,
                          "ok")):
                if variant in workers:
                    self.guarded(workload, workers, variant, *what)
        seconds = (self.args.seconds * WORKLOADS[workload][3] /
                   self.args.rounds)
        everybody = [v for v in workers if (workload, v) not in self.skipped]
        judged = [v for v in everybody if v in (BARE, SHIM)]
        before = self.slice(workload, workers, everybody, count,
                            seconds * 0.3, number)
        with_companion = []
        if BOTH in self.machine.without or BOTH not in self.args.variants:
            self.skipped[program, BOTH] = self.machine.without.get(
                BOTH, "not asked for")
        elif (program, BOTH) not in self.skipped:
            try:
                with Companion(self.machine, self.work / "companion"):
                    with_companion = self.slice(workload, workers,
                                                judged, count, seconds * 0.4,
                                                number)
            except Problem as e:
                say(f"{TITLES[BOTH]}: {e}")
                self.skipped[program, BOTH] = str(e)
        after = self.slice(workload, workers, everybody, count,
                           seconds * 0.3, number)
        self.measured[workload].add([before, after], with_companion)

    def slice(self, workload, workers, names, count, seconds, number):
        turns = []
        end = time.monotonic() + seconds
        others = [v for v in names if v not in EVERY_TURN]
        while time.monotonic() < end or len(turns) < 3:
            order = [v for v in names if v in workers]
            if workload in SLOW and others:
                mine = others[(len(turns) + number) % len(others)]
                order = [v for v in order if v in EVERY_TURN or v == mine]
            self.random.shuffle(order)
            turn = {}
            for variant in order:
                ns = self.guarded(workload, workers, variant, Worker.block,
                                  workload, count)
                if ns is not None:
                    turn[variant] = ns
            turns.append(turn)
        return turns

    # Has the recorder what was made?

    def check(self, program, worker, made):
        variant = worker.variant
        text = worker.records
        blocks = sum(int(made.get(f, 0)) for f in BLOCK_CALLS)
        if variant == SHIM:
            text = self.check_shim(program, worker, made)
        elif variant == "torch-profiler":
            text = f"events={made['events']}"
            if int(made["events"]) == 0:
                self.failures.append("torch.profiler recorded nothing")
        elif variant == "nsys":
            # Without its agent the injection may write nothing at the end; what
            # it costs meanwhile is the figure, and it is told.
            if text == "bytes 0":
                self.notes.add("nsys was injected and left no file: its cost is "
                               "measured, what it recorded is not known")
        elif variant == UPROBE or variant.startswith("cupti-"):
            got = re.search(r"records[ =](\d+)", text)
            reason = re.search(r"reason=(.+)", text)
            got = int(got.group(1)) if got else 0
            wrong = got != blocks if variant == UPROBE else got < blocks
            if program == "torch":
                wrong = got == 0
            else:
                text = f"{text}, made {blocks}"
            if reason:
                self.skipped[program, variant] = reason.group(1)
            elif wrong:
                self.failures.append(f"{TITLES[variant]} recorded {got} calls "
                                     f"of {blocks} ({text})")
        if text:
            self.records.setdefault((program, variant), []).append(text)

    def check_shim(self, program, worker, made):
        if not self.machine.ingero.exists():
            return "not counted: no bin/ingero"
        store = worker.folder / "shim.store"
        counts = {}
        for command in (
                ["merge", "--dir", worker.traces, "-o", store],
                ["query", "--db", store, "--format", "csv",
                 "SELECT name, count(*) FROM calls WHERE pid = "
                 f"{worker.pid} GROUP BY name"]):
            run = subprocess.run([self.machine.ingero, *command],
                                 env=self.machine.tools, capture_output=True,
                                 text=True)
            if run.returncode != 0:
                self.failures.append(f"ingero {command[0]}: "
                                     f"{run.stderr.strip()[:300]}")
                return "not counted"
        for line in run.stdout.splitlines()[1:]:
            name, _, n = line.rpartition(",")
            counts[name] = int(n)
        if program == "torch":
            if not counts and made["device"] == "cuda":
                self.failures.append("the shim recorded nothing of PyTorch")
            return f"records={sum(counts.values())}"
        for name in BLOCK_CALLS:
            if counts.get(name, 0) != int(made[name]):
                self.failures.append(f"the shim recorded {counts.get(name, 0)} "
                                     f"{name} of {made[name]}")
        return (f"records={sum(counts.values())}, every runtime call among "
                "them")

    # ---- the answer ----

    def result(self):
        workloads = {}
        for name, m in self.measured.items():
            block, unit, what, _ = WORKLOADS[name]
            program = "cuda_calls" if name in NATIVE else "torch"
            variants = {}
            for variant in TITLES:
                if variant == BARE or (variant == "torch-profiler" and
                                       program != "torch"):
                    continue
                row = {"title": TITLES[variant]}
                if variant in m.added:
                    row["added_ns"] = interval(m.added[variant])
                    row["slowdown_percent"] = interval(m.ratio[variant])
                    records = self.records.get((program, variant))
                    if records:
                        row["recorded"] = records[-1]
                elif variant in self.args.variants:
                    row["skipped"] = self.skipped.get(
                        (name, variant),
                        self.skipped.get((program, variant), "not measured"))
                else:
                    continue
                variants[variant] = row
            if m.bare:
                workloads[name] = {
                    "what": what, "unit": unit, "block": block,
                    "rounds": len(m.bare), "turns": m.turns,
                    "bare_ns": interval(m.bare), "variants": variants,
                    "goals": self.goals(name, m)}
        return {"schema": {"name": "ingero.bench.compare", "version": 1},
                "machine": self.machine.describe(),
                "workloads": workloads, "notes": sorted(self.notes),
                "failures": self.failures}

    @staticmethod
    def goals(name, m):
        goals = []
        if name in NATIVE:
            for other, times in ((RUNTIME, 8), (UPROBE, 40)):
                if other not in m.added or SHIM not in m.added:
                    continue
                ratios = [theirs / ours if ours > 0 else float("inf")
                          for theirs, ours in zip(m.added[other],
                                                  m.added[SHIM])]
                got = interval(ratios)
                verdict = ("met" if got["low"] >= times else "missed"
                           if got["high"] < times else "undecided")
                goals.append({
                    "text": f"shim adds at least {times}x less than "
                            f"{TITLES[other]}",
                    "got": {k: (v if v != float("inf") else None)
                            for k, v in got.items()}, "verdict": verdict})
        elif name in SLOW:
            for variant in (SHIM, BOTH):
                if variant not in m.ratio:
                    continue
                got = interval(m.ratio[variant])
                noise = max(map(abs, m.ratio.get(AGAIN, [0])))
                verdict = ("met" if got["high"] < 1 else "missed"
                           if got["low"] > max(1, noise) else "within noise"
                           if got["low"] <= noise else "undecided")
                goals.append({"text": f"{TITLES[variant]}: under 1 % slower",
                              "got": got, "verdict": verdict,
                              "noise_percent": noise})
        return goals


def quantity(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= 10 * size:
            return f"{ns / size:,.1f} {unit}"
    return f"{ns:,.1f} ns"


def as_text(result):
    out = []
    m = result["machine"]
    out.append(f"{m['gpu'] or 'no GPU'}; {m['cpu']}, {m['cpus']} CPUs; kernel "
               f"{m['kernel']}; torch {m['torch']}")
    for name, w in result["workloads"].items():
        bare = w["bare_ns"]
        out += ["", f"{name}: {w['what']}",
                f"  nothing: {quantity(bare['median'])} a {w['unit']} "
                f"({quantity(bare['low'])} to {quantity(bare['high'])}); "
                f"{w['rounds']} rounds, {w['turns']} turns",
                f"  {'':34}{'added a ' + w['unit']:>14}   "
                f"{'range (' + format(bare['probability'], '.0%') + ')':<26}"
                f"{'slowdown, %':>12}   range"]
        for row in w["variants"].values():
            if "skipped" in row:
                out.append(f"  {row['title']:34}{'-':>14}   not measured: "
                           f"{row['skipped']}")
                continue
            a, s = row["added_ns"], row["slowdown_percent"]
            span = f"{quantity(a['low'])} to {quantity(a['high'])}"
            out.append(f"  {row['title']:34}{quantity(a['median']):>14}   "
                       f"{span:<26}{s['median']:>12.2f}   {s['low']:.2f} to "
                       f"{s['high']:.2f}")
        for goal in w["goals"]:
            got = {k: "inf" if v is None else f"{v:.2f}"
                   for k, v in goal["got"].items()}
            out.append(f"  goal: {goal['text']}: {got['median']} "
                       f"({got['low']} to {got['high']}): {goal['verdict']}")
    for note in result["notes"]:
        out.append(f"note: {note}")
    for failure in result["failures"]:
        out.append(f"FAILED: {failure}")
    return "\n".join(out)


# ---- to another machine -----------------------------------------------------

def pack(build, folder):
    """Binaries, and the libraries that another machine may lack."""
    names = ["bin/ingero", "bin/ingero-kprobe", "lib/libingero_cuda.so",
             "lib/libingero_check.so", "bench/gpu/cuda_calls",
             "bench/gpu/cupti_tool.so", "bench/gpu/uprobe_tool",
             "bench/gpu/uprobe.bpf.o"]
    libraries = set()
    for script in (HERE / "compare.py", HERE / "torch_worker.py",
                   ROOT / "examples" / "benchmark.py"):
        to = folder / script.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(script, to)
    for name in names:
        source, to = build / name, folder / name
        if not source.exists():
            say(f"left out: {source} (not built)")
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".bpf.o"):
            shutil.copy2(source, to)
            continue
        subprocess.run(["strip", "--strip-debug", "-o", to, source],
                       check=True)
        ldd = subprocess.run(["ldd", source], capture_output=True, text=True)
        for path in re.findall(r"=> (/\S+)", ldd.stdout):
            # The C and C++ libraries of the other machine must serve: Python
            # there needs them, too.
            if not re.match(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.",
                            os.path.basename(path)):
                libraries.add(path)
    (folder / "libs").mkdir(parents=True, exist_ok=True)
    for path in sorted(libraries):
        shutil.copy2(os.path.realpath(path),
                     folder / "libs" / os.path.basename(path))
    total = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    say(f"{folder}: {total / 2**20:.1f} MiB; there: python3 "
        f"{folder.name}/bench/gpu/compare.py --build {folder.name}")


def words(allowed):
    def parse(text):
        chosen = text.split(",")
        for word in chosen:
            if word not in allowed:
                raise argparse.ArgumentTypeError(
                    f"'{word}' is none of {', '.join(allowed)}")
        return chosen
    return parse


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, required=True,
                   help="build folder, or one made by --pack")
    p.add_argument("--rounds", type=int, default=6,
                   help="sets of fresh processes; from 6 on the ranges hold "
                        "with 95 %% (default 6)")
    p.add_argument("--seconds", type=float, default=15,
                   help="for a workload, in all rounds together; PyTorch's "
                        "take a multiple, up to 4 (default 15)")
    p.add_argument("--limit", type=float, default=float("inf"),
                   help="begin nothing new after so many seconds")
    p.add_argument("--block", type=float, default=1,
                   help="size of a block, relative (default 1)")
    p.add_argument("--workloads", type=words(list(WORKLOADS)),
                   default=list(WORKLOADS), metavar="NAME,...",
                   help="of " + ", ".join(WORKLOADS))
    p.add_argument("--variants", type=words(list(TITLES)),
                   default=list(TITLES), metavar="NAME,...",
                   help="of " + ", ".join(TITLES) + "; bare always")
    p.add_argument("--json", type=pathlib.Path, help="write the figures here")
    p.add_argument("--work", type=pathlib.Path,
                   help="folder for traces (default: TMPDIR)")
    p.add_argument("--simulated", action="store_true",
                   help="on the tests' simulated CUDA: tries the machinery, "
                        "the figures mean nothing")
    p.add_argument("--pack", type=pathlib.Path, metavar="FOLDER",
                   help="measure nothing; copy what is needed elsewhere")
    args = p.parse_args()
    if args.rounds < 1 or args.seconds <= 0 or args.block <= 0:
        p.error("--rounds, --seconds and --block must be greater than 0")
    args.variants = list({BARE: 0, SHIM: 0, **dict.fromkeys(args.variants)})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if args.pack:
            pack(args.build.resolve(), args.pack.resolve())
            return 0
        machine = Machine(args)
        if not machine.simulated and not machine.cudart:
            raise Problem("no libcudart here: install CUDA's runtime or "
                          "PyTorch, or try --simulated")
        if not machine.torch or machine.simulated:
            left = [w for w in args.workloads if w in NATIVE]
            if left != args.workloads:
                say("PyTorch's workloads are left out: " +
                    ("simulated" if machine.simulated else
                     "torch cannot be imported"))
            args.workloads = left
        comparison = Comparison(machine, args)
        try:
            comparison.run()
        finally:
            shutil.rmtree(comparison.work, ignore_errors=True)
            result = comparison.result()
            if args.json and result["workloads"]:
                args.json.write_text(json.dumps(result, indent=1) + "\n")
            if result["workloads"]:
                print(as_text(result), flush=True)
        return 1 if result["failures"] else 0
    except Problem as e:
        say(str(e))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
