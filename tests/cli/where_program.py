# SPDX-License-Identifier: Apache-2.0
"""A program on the simulated CUDA for where_test.py, with one planted reason
why the GPU waits: where_program.py LIBCUDART host|sync|loader|native|lock SECONDS. Its
lines are found by their comments."""

import ctypes
import multiprocessing
import random
import sys
import threading
import time
import zlib

WORK_BYTES = 1 << 20


class Gpu:

    def __init__(self, path):
        self.cuda = ctypes.CDLL(path)
        self.memory = ctypes.c_void_p()
        assert self.cuda.cudaMalloc(ctypes.byref(self.memory),
                                    ctypes.c_size_t(WORK_BYTES)) == 0

    def submit(self):
        self.cuda.cudaMemsetAsync(self.memory, 0, ctypes.c_size_t(WORK_BYTES),
                                  None)

    def wait(self):
        self.cuda.cudaStreamSynchronize(None)

    def item(self):
        return self.cuda.cudaStreamQuery(None)  # planted: sync


def augment(n):
    total = 0
    for i in range(n):
        total += i * i  # planted: host
    return total


def augment_fast(n):
    return n * n  # a control: hardly any time


def compress(data):
    return zlib.compress(data, 9)  # planted: native


stop = threading.Event()


def postprocess():
    total = 0
    while not stop.is_set():
        for i in range(2_000):
            total += i * i  # planted: lock


class Dataset:

    def __getitem__(self, index):
        total = index
        for i in range(60_000):
            total += i * index  # planted: loader
        return total


def worker(pipe):
    data = Dataset()
    index = 0
    while pipe.recv():
        index += 1
        pipe.send(data[index])


def main():
    mode, seconds = sys.argv[2], float(sys.argv[3])
    if mode == "loader":
        pipe, far = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=worker, args=(far,), daemon=True)
        process.start()
    if mode == "lock":
        threading.Thread(target=postprocess, name="postprocess").start()
    data = random.Random(0).randbytes(50_000) * 4
    gpu = Gpu(sys.argv[1])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gpu.submit()
        gpu.wait()
        augment_fast(3)
        if mode == "host":
            augment(60_000)
        elif mode == "native":
            compress(data)
        elif mode == "sync":
            for _ in range(20):
                gpu.item()
        elif mode == "loader":
            pipe.send(True)
            pipe.recv()
    stop.set()
    if mode == "loader":
        pipe.send(False)


if __name__ == "__main__":
    main()
