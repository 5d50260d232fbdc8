#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does PyTorch work in blocks, on request: torch_worker.py SOCKET

The protocol of cuda_calls.c, with these blocks:

  small N    N additions of 16 numbers, eager
  loader N   examples/benchmark.py's loaderN phase over N rows: 4 workers,
             pinned memory, the loss read after each batch
  train N    N training steps of a small transformer, the loss read after each

BENCH_TORCH_PROFILER=1: torch.profiler records each block; its start and stop
are not timed. Without a GPU all runs on the CPU, so that it can be tried.
"""
import importlib.util
import os
import pathlib
import socket
import sys
import time

import torch

EXAMPLE = (pathlib.Path(__file__).resolve().parents[2] / "examples" /
           "benchmark.py")
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
WARM = {"small": 50, "loader": 0, "train": 2}
LOADER_BATCH = 16_384


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


class Small:
    def __init__(self):
        self.x = torch.zeros(16, device=DEVICE)

    def run(self, n):
        x = self.x
        for _ in range(n):
            x = x + 1
        synchronize()


class Loader:
    def __init__(self):
        spec = importlib.util.spec_from_file_location("benchmark", EXAMPLE)
        self.example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.example)
        self.model = self.example.make_model(torch, DEVICE)
        self.x, self.y = torch.empty(0, self.example.FEATURES), None

    def run(self, rows):
        if not rows:
            return
        if self.x.shape[0] != rows:
            self.x = torch.randn(rows, self.example.FEATURES)
            self.y = torch.randint(0, self.example.CLASSES, (rows,))
        args = self.example.parse_args(
            ["--rows", str(rows), "--batch", str(LOADER_BATCH), "--phases",
             "loaderN"])
        self.example.run_phase(torch, "loaderN", self.x, self.y, self.model,
                               args, DEVICE)


class Train:
    """Launch-bound on a large GPU: what a recorder of calls costs most."""
    VOCABULARY, WIDTH, BATCH, LENGTH = 1000, 256, 16, 128

    def __init__(self):
        nn = torch.nn
        layer = nn.TransformerEncoderLayer(self.WIDTH, 4, 4 * self.WIDTH,
                                           dropout=0.1, batch_first=True)
        self.model = nn.Sequential(
            nn.Embedding(self.VOCABULARY, self.WIDTH),
            nn.TransformerEncoder(layer, 4),
            nn.Linear(self.WIDTH, self.VOCABULARY)).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(0, self.VOCABULARY,
                                    (self.BATCH, self.LENGTH + 1),
                                    device=DEVICE)

    def run(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            out = self.model(self.tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(
                out.reshape(-1, self.VOCABULARY),
                self.tokens[:, 1:].reshape(-1))
            loss.backward()
            self.optimizer.step()
            loss.item()


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    lines = connection.makefile("rw", buffering=1)
    torch.manual_seed(0)
    made = {"small": Small, "loader": Loader, "train": Train}
    works = {}
    profiled = os.environ.get("BENCH_TORCH_PROFILER") == "1"
    events = 0
    torch.ones(1, device=DEVICE)
    synchronize()
    lines.write(f"ready {os.getpid()}\n")
    for line in lines:
        word, _, value = line.strip().partition(" ")
        if word == "quit":
            lines.write(f"made events={events} device={DEVICE.type}\n")
            return 0
        if word == "pin":
            os.sched_setaffinity(0, {int(x) for x in value.split(",")})
            lines.write("ok\n")
            continue
        try:
            if word not in works:
                works[word] = made[word]()
                # Kernels and libraries load here.
                works[word].run(max(10, WARM[word]) if word != "loader"
                                else 2 * LOADER_BATCH)
            work = works[word]
            profile = None
            if profiled:
                kinds = torch.profiler.ProfilerActivity
                profile = torch.profiler.profile(
                    activities=[kinds.CPU] + ([kinds.CUDA] if CUDA else []))
                profile.start()
            work.run(WARM[word])
            synchronize()
            begin = time.monotonic_ns()
            work.run(int(value))
            synchronize()
            ns = time.monotonic_ns() - begin
            if profile:
                profile.stop()
                events += len(profile.profiler.kineto_results.events())
            lines.write(f"ns {ns}\n")
        except Exception as e:  # told to whom asked
            lines.write(f"error {word}: {type(e).__name__}: "
                        f"{str(e).splitlines()[0] if str(e) else ''}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
