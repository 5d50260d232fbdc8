#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Feeds one small model in three ways and times each: the same rows, the same
model, the same batches; only the way they reach the GPU differs.

  direct    slices the tensors that already lie in memory
  loader0   DataLoader(TensorDataset), shuffled, in the main process
  loaderN   the same with N worker processes and pinned memory

Our reproduction of the case reported as pytorch#154318: rows of 100 features,
an MLP 100-512-512-10, large batches. Record it:

  LD_PRELOAD=libingero_cuda.so python3 benchmark.py
"""

import argparse
import json
import os
import platform
import sys
import time
import warnings

FEATURES = 100
CLASSES = 10
PHASES = ("direct", "loader0", "loaderN")


def parse_args(argv):
    p = argparse.ArgumentParser(
        description="Times three ways of feeding one model.")
    p.add_argument("--rows", type=int, default=2_000_000,
                   help="rows of the data set (the published case: 7000000)")
    p.add_argument("--batch", type=int, default=65_536, help="rows a batch")
    p.add_argument("--epochs", type=int, default=1, help="epochs a phase")
    p.add_argument("--workers", type=int, default=4,
                   help="worker processes of phase loaderN")
    p.add_argument("--phases", default=",".join(PHASES),
                   help="comma-separated, in this order: " + ", ".join(PHASES))
    p.add_argument("--no-item", action="store_true",
                   help="do not read the loss after every batch")
    p.add_argument("--pause", type=float, default=1.0,
                   help="seconds between phases, so that a trace shows them "
                        "apart")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--json", metavar="FILE",
                   help="write times and what was run ('-': standard output)")
    args = p.parse_args(argv)
    args.phases = [x.strip() for x in args.phases.split(",") if x.strip()]
    for phase in args.phases:
        if phase not in PHASES:
            p.error(f"no phase is called {phase!r}; there are "
                    + ", ".join(PHASES))
    for name in ("rows", "batch", "epochs"):
        if getattr(args, name) < 1:
            p.error(f"--{name} must be at least 1")
    if args.workers < 1 and "loaderN" in args.phases:
        p.error("--workers must be at least 1 for phase loaderN")
    return args


def import_torch():
    try:
        import torch
    except ImportError as e:
        sys.exit(f"benchmark.py: cannot import torch ({e}); "
                 "install PyTorch, e.g. python3 -m pip install torch")
    return torch


def make_model(torch, device):
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(FEATURES, 512), nn.ReLU(),
        nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, CLASSES)).to(device)


def slices(torch, x, y, batch):
    """Batches as views, in shuffled order of batches: no copy, no collation."""
    starts = range(0, x.shape[0], batch)
    for i in torch.randperm(len(starts)).tolist():
        begin = starts[i]
        yield x[begin:begin + batch], y[begin:begin + batch]


def make_loader(torch, x, y, args, workers, pin):
    from torch.utils.data import DataLoader, TensorDataset
    return DataLoader(TensorDataset(x, y), batch_size=args.batch, shuffle=True,
                      num_workers=workers, pin_memory=pin)


def train(torch, model, optimizer, loss_function, batches, device, pin,
          read_loss):
    """One epoch, as most tutorials write it. Returns rows seen."""
    rows = 0
    total = 0.0
    model.train()
    for x, y in batches:
        rows += x.shape[0]
        x = x.to(device, non_blocking=pin)
        y = y.to(device, non_blocking=pin)
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        if read_loss:
            total += loss.item()
    return rows


def run_phase(torch, phase, x, y, model, args, device):
    cuda = device.type == "cuda"
    workers = args.workers if phase == "loaderN" else 0
    pin = phase == "loaderN" and cuda
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_function = torch.nn.CrossEntropyLoss()
    if cuda:
        torch.cuda.synchronize()
    begin_wall = time.time()
    begin_mono = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    rows = 0
    for _ in range(args.epochs):
        if phase == "direct":
            batches = slices(torch, x, y, args.batch)
        else:
            batches = make_loader(torch, x, y, args, workers, pin)
        rows += train(torch, model, optimizer, loss_function, batches, device,
                      pin, not args.no_item)
    if cuda:
        torch.cuda.synchronize()
    end_mono = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return {
        "phase": phase,
        "workers": workers,
        "pin_memory": pin,
        "rows": rows,
        "seconds": (end_mono - begin_mono) / 1e9,
        "begin_monotonic_ns": begin_mono,
        "end_monotonic_ns": end_mono,
        "begin_unix_s": begin_wall,
        "end_unix_s": time.time(),
    }


def warm_up(torch, model, device, args):
    """Context, libraries and kernels are loaded here, in no phase's time."""
    n = min(args.batch, args.rows)
    x = torch.randn(n, FEATURES)
    y = torch.randint(0, CLASSES, (n,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        train(torch, model, optimizer, torch.nn.CrossEntropyLoss(), [(x, y)],
              device, False, True)
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(argv=None):
    args = parse_args(argv)
    torch = import_torch()
    # The case is more workers than CPUs, so being told about it is no news.
    warnings.filterwarnings("ignore",
                            message=r"This DataLoader will create .* worker")
    torch.manual_seed(args.seed)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    if cuda:
        print(f"device: {torch.cuda.get_device_name(0)}")
    else:
        print("device: CPU. There is no CUDA device, so no GPU can starve "
              "here; the times only show the cost of loading, slowly.")
    cpus = len(os.sched_getaffinity(0))
    print(f"rows {args.rows}, batch {args.batch}, epochs {args.epochs}, "
          f"CPUs {cpus}, torch {torch.__version__}, pid {os.getpid()}",
          flush=True)

    x = torch.randn(args.rows, FEATURES)
    y = torch.randint(0, CLASSES, (args.rows,))
    model = make_model(torch, device)
    warm_up(torch, model, device, args)

    results = []
    direct = None
    for i, phase in enumerate(args.phases):
        if i > 0 and args.pause > 0:
            time.sleep(args.pause)
        result = run_phase(torch, phase, x, y, model, args, device)
        if phase == "direct":
            direct = result["seconds"]
        result["times_direct"] = (
            result["seconds"] / direct if direct else None)
        results.append(result)
        ratio = (f"{result['times_direct']:8.1f}x direct"
                 if direct and phase != "direct" else "")
        name = (phase if phase != "loaderN" else f"loader{args.workers}")
        print(f"{name:10s} {result['seconds']:9.3f} s {ratio:18s}  "
              f"monotonic {result['begin_monotonic_ns'] / 1e9:.3f} to "
              f"{result['end_monotonic_ns'] / 1e9:.3f} s", flush=True)

    if args.json:
        text = json.dumps({
            "rows": args.rows, "batch": args.batch, "epochs": args.epochs,
            "cpus": cpus, "item": not args.no_item, "pid": os.getpid(),
            "device": torch.cuda.get_device_name(0) if cuda else "cpu",
            "torch": torch.__version__, "python": platform.python_version(),
            "phases": results,
        }, indent=1)
        if args.json == "-":
            print(text)
        else:
            with open(args.json, "w", encoding="utf-8") as f:
                f.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
