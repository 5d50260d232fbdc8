#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero-kprobe --metrics`: figures for Prometheus while it records; who may
ask; and that who asks slowly, or never ends, keeps nobody waiting.

  metrics_test.py --kprobe K [--nvml FOLDER] UsageTest|RecordingTest
"""
import argparse
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None
PATIENCE_S = 60
CLIENTS = 16  # as kernel_probe/metrics.h has it
KERNEL_LOSSES = {"write-failed", "switch-ring-full", "task-ring-full",
                 "task-storage", "writer-behind", "bpf-missed",
                 "switch-unseen", "page-ring-full"}
LINE = re.compile(r'^([a-z_]+)(?:\{([a-z]+)="([^"]*)"\})? (\S+)$')


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-metrics-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "SUDO_"))}

    def kprobe(self, *args, **env):
        return subprocess.Popen(
            [OPTIONS.kprobe, "--dir", os.path.join(self.dir, "trace"), *args],
            env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fails(self, status, says, *args, **more):
        process = self.kprobe(*args, **more)
        err = process.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(process.returncode, status, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertRegex(err, says)


class UsageTest(Case):
    def test_addresses(self):
        for address in ("9753", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                        ":9753", "127.0.0.1:http"):
            self.fails(2, r"--metrics: .* is not an address; write for "
                          r"example 127\.0\.0\.1", "--metrics", address)
        self.fails(2, "--metrics", "--metrics")

    def test_beyond_this_machine_only_with_a_token(self):
        for address in ("0.0.0.0:0", "[::]:0", "10.0.0.1:9753"):
            self.fails(2, "INGERO_METRICS_TOKEN", "--metrics", address)

    def test_without_rights(self):
        """What it needs to record is what it says."""
        if os.geteuid() != 0:
            self.fails(1, "not permitted|CAP_", "--metrics", "127.0.0.1:0")
            return
        drop = shutil.which("setpriv")
        if not drop:
            self.skipTest("no setpriv")
        os.chmod(self.dir, 0o777)
        process = subprocess.run(
            [drop, "--reuid", "65534", "--regid", "65534", "--clear-groups",
             "--inh-caps=-all", OPTIONS.kprobe, "--dir",
             os.path.join(self.dir, "trace"), "--metrics", "127.0.0.1:0"],
            env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertRegex(process.stderr, "not permitted|CAP_")


class RecordingTest(Case):
    def record(self, address="127.0.0.1:0", *args, **env):
        process = self.kprobe("--metrics", address, *args, **env)

        def stop():
            process.kill()
            process.communicate()
        self.addCleanup(stop)
        for line in process.stderr:
            found = re.fullmatch(r"metrics: http://\S+:(\d+)/metrics\n", line)
            if found:
                self.port = int(found[1])
            if line == "recording\n":
                return process
        self.fail("it ended before it recorded")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port),
                                        timeout=PATIENCE_S)

    def get(self, path="/metrics", method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()

    def figures(self):
        """{(name, label's value)}: number; every line is checked."""
        status, text, headers = self.get()
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith(
            "text/plain; version=0.0.4"))
        figures, types = {}, {}
        for line in text.splitlines():
            comment = re.fullmatch(r"# (HELP|TYPE) (\S+) (.+)", line)
            if comment:
                if comment[1] == "TYPE":
                    self.assertIn(comment[3], ("counter", "gauge"))
                    types[comment[2]] = comment[3]
                continue
            match = LINE.match(line)
            self.assertTrue(match, line)
            name, _, value, number = match.groups()
            self.assertIn(name, types)
            self.assertEqual(name.endswith("_total"), types[name] == "counter")
            self.assertNotIn((name, value), figures)
            figures[name, value] = float(number)
        return figures

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_figures(self):
        process = self.record()
        first = self.figures()
        # Switches, wakes and pages of our own making.
        for _ in range(50):
            subprocess.run(["true"], check=True)
        self.wait_for(lambda: all(
            self.figures()[name, None] > first[name, None] + 20 for name in (
                "ingero_switches_seen_total", "ingero_switches_recorded_total",
                "ingero_wakes_total", "ingero_pages_allocated_total",
                "ingero_task_events_total", "ingero_written_bytes_total")))
        now = self.figures()
        self.assertEqual({kind for name, kind in now
                          if name == "ingero_lost_total"}, KERNEL_LOSSES)
        self.assertEqual({shim for name, shim in now
                          if name == "ingero_cuda_processes"}, {"yes", "no"})
        self.assertGreater(now["ingero_probe_seconds_total", "estimate"], 0)
        self.assertGreater(now["ingero_own_cpu_seconds_total", None], 0)
        self.assertLessEqual(now["ingero_wakes_total", None],
                             now["ingero_switches_seen_total", None])
        # Counters do not fall, and there are few lines.
        for key, value in first.items():
            if key[0].endswith("_total"):
                self.assertGreaterEqual(now[key], value, key)
        self.assertLess(len(now), 64)
        # Recording ends as ever, and so do the figures.
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(err, r"recorded [1-9][\d,]* switches")
        with self.assertRaises(OSError):
            self.connect()

    def test_gpus(self):
        if not OPTIONS.nvml:
            self.skipTest("no simulated NVML")
        self.record(LD_LIBRARY_PATH=OPTIONS.nvml)
        gpu = "ingero_gpu_utilization_ratio"
        self.wait_for(lambda: (gpu, "0") in self.figures())
        figures = self.figures()
        self.assertEqual({k[1]: v for k, v in figures.items() if k[0] == gpu},
                         {"0": 0.41, "1": 0.42})

    def test_cuda_processes_are_counted_while_they_run(self):
        self.record()
        count = lambda: self.figures()["ingero_cuda_processes", "no"]
        before = count()
        # One that has such a library mapped is enough, by its name.
        library = os.path.join(self.dir, "libcuda.so.1")
        shutil.copy(OPTIONS.kprobe, library)
        mapper = subprocess.Popen(
            [sys.executable, "-c", "import mmap, sys\n"
             "f = open(sys.argv[1], 'rb')\n"
             "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n"
             "sys.stdin.read()", library], stdin=subprocess.PIPE)
        try:
            self.wait_for(lambda: count() > before)
        finally:
            mapper.communicate()
        self.wait_for(lambda: count() <= before)

    def test_other_requests(self):
        self.record()
        self.assertEqual(self.get("/")[0], 404)
        self.assertEqual(self.get("/metricsx")[0], 404)
        self.assertEqual(self.get("/metrics?a=b")[0], 200)
        status, text, headers = self.get(method="HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 100)
        self.assertEqual(self.get(method="POST")[0], 405)
        self.assertEqual(self.get(Host="attacker.example")[0], 403)
        self.assertEqual(self.get(Host=f"localhost:{self.port}")[0], 200)
        for garbage in (b"\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n",
                        b"GET " + b"/" * 20000):
            with self.connect() as s:
                s.sendall(garbage)
                answer = s.recv(64)
                self.assertRegex(answer, rb"^HTTP/1\.1 4\d\d ")
        self.figures()

    def test_a_token(self):
        self.record("0.0.0.0:0", INGERO_METRICS_TOKEN="s3cret")
        self.assertEqual(self.get()[0], 401)
        self.assertEqual(self.get(Authorization="Bearer s3cre")[0], 401)
        self.assertEqual(self.get(Authorization="Bearer s3cret")[0], 200)

    def test_slow_clients_keep_nobody_waiting(self):
        process = self.record()
        # As many as there may be at once, and more: silent, half a request,
        # and one that never reads.
        slow = [self.connect() for _ in range(CLIENTS + 4)]
        try:
            for s in slow[::2]:
                s.sendall(b"GET /metrics HTTP/1.1\r\n")
            # Who came too late for a place gets one when those are given up.
            before = self.figures()
            self.wait_for(lambda: self.figures()[
                "ingero_switches_recorded_total", None] > before[
                "ingero_switches_recorded_total", None])
            descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
            self.assertIsNone(process.poll())
        finally:
            for s in slow:
                s.close()
        # All their places are free again.
        self.wait_for(lambda: len(os.listdir(f"/proc/{process.pid}/fd"))
                      <= descriptors)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0)

    def test_ends_though_somebody_is_connected(self):
        process = self.record()
        with self.connect():
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, 0)

    def test_a_taken_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.fails(1, rf"--metrics: listening on 127\.0\.0\.1:{port} "
                          r"\(another program is there; choose another port\)",
                       "--metrics", f"127.0.0.1:{port}")
        # Nothing was begun.
        self.assertFalse(os.path.exists(os.path.join(self.dir, "trace")))
        # It stays free for others while two may not share it.
        self.record()
        self.fails(1, "another program is there",
                   "--metrics", f"127.0.0.1:{self.port}")

    def test_an_address_that_is_not_ours(self):
        self.fails(1, "--metrics: listening on 192.0.2.1:9753",
                   "--metrics", "192.0.2.1:9753", INGERO_METRICS_TOKEN="x")


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--kprobe", required=True)
    parser.add_argument("--nvml")
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "RecordingTest")


if __name__ == "__main__":
    main()
