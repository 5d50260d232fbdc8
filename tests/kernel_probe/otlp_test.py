#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero-kprobe --otlp`: what a collector receives, by a check of our own and,
where it is installed, by OpenTelemetry's own reader (PyPI: opentelemetry-proto);
and collectors that are away, silent, slow, or answer no."""
import argparse
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
except ImportError:
    json_format = None

OPTIONS = None
PATIENCE_S = 60


class Receiver:
    """A collector: keeps what it gets, and answers as it is told."""

    def __init__(self, answer=lambda n: (200, {}, b"{}")):
        self.requests = []  # (path, headers, body)
        self.times = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.times.append(time.monotonic())
                headers = {k.title(): v for k, v in self.headers.items()}
                outer.requests.append((self.path, headers, body))
                status, headers, text = answer(len(outer.requests))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-otlp-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("INGERO_", "SUDO_", "OTEL_"))}

    def kprobe(self, *args, **env):
        process = subprocess.Popen(
            [OPTIONS.kprobe, "--dir", os.path.join(self.dir, "trace"), *args],
            env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def stop():
            process.kill()
            process.communicate()
        self.addCleanup(stop)
        return process


class UsageTest(Case):
    def fails(self, says, *args, **env):
        process = self.kprobe(*args, **env)
        err = process.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(process.returncode, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertRegex(err, says)

    def test_addresses(self):
        self.fails("--otlp: https://c: ingero-kprobe speaks no TLS; send to a "
                   "collector on this machine", "--otlp", "https://c")
        self.fails("--otlp: 'c:4318' is not an address", "--otlp", "c:4318")
        self.fails("OTEL_EXPORTER_OTLP_HEADERS", "--otlp",
                   OTEL_EXPORTER_OTLP_HEADERS="x")
        self.fails("--otlp-every: needs --otlp", "--otlp-every", "5s")
        for every in "1ms", "soon", "48h":
            self.fails("--otlp-every", "--otlp", "--otlp-every", every)


class ExportTest(Case):
    def receiver(self, *args):
        receiver = Receiver(*args)
        self.addCleanup(receiver.close)
        return receiver

    def record(self, *args, **env):
        process = self.kprobe(*args, **env)
        self.said = []
        for line in process.stderr:
            self.said.append(line)
            found = re.fullmatch(r"metrics: http://\S+:(\d+)/metrics\n", line)
            if found:
                self.port = int(found[1])
            if line == "recording\n":
                return process
        self.fail("it ended before it recorded: " + "".join(self.said))

    def end(self, process):
        process.send_signal(signal.SIGINT)
        # communicate() would miss what record() has buffered.
        err = process.stderr.read()
        self.assertEqual(process.wait(PATIENCE_S), 0, err)
        return err

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def scraped(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        figures = {}
        for line in text.splitlines():
            match = re.match(r'^([a-z_]+)(?:\{([a-z]+)="([^"]*)"\})? (\S+)$',
                             line)
            if match:
                figures[match[1], match[3]] = float(match[4])
        types = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
        return figures, types

    def read(self, body):
        """({(name, label's value): number}, {name: type}, resource), by the
        standard's JSON mapping: every field is one that it has."""
        if json_format is not None:
            json_format.Parse(
                body, metrics_service_pb2.ExportMetricsServiceRequest())
        request = json.loads(body)

        def only(thing, *names):
            self.assertLessEqual(set(thing), set(names), thing)
            return [thing.get(n) for n in names]

        def attributes(of):
            found = {}
            for a in of or []:
                key, value = only(a, "key", "value")
                (kind, plain), = value.items()
                self.assertIn(kind, ("stringValue", "intValue"))
                self.assertIsInstance(plain, str)
                self.assertNotIn(key, found)
                found[key] = plain
            return found
        (resource_metrics,), = only(request, "resourceMetrics")
        resource, (scoped,) = only(resource_metrics, "resource",
                                   "scopeMetrics")
        resource = attributes(only(resource, "attributes")[0])
        scope, metrics = only(scoped, "scope", "metrics")
        self.assertEqual(scope["name"], "ingero-kprobe")
        figures, types, begins = {}, {}, set()
        for m in metrics:
            name, about, unit, total, gauge = only(m, "name", "description",
                                                   "unit", "sum", "gauge")
            self.assertTrue(about and unit)
            self.assertNotIn(name, types)
            types[name] = "counter" if total else "gauge"
            if total:
                points, when, rises = only(total, "dataPoints",
                                           "aggregationTemporality",
                                           "isMonotonic")
                self.assertEqual((when, rises), (2, True))
            else:
                points, = only(gauge, "dataPoints")
            self.assertTrue(points)
            for p in points:
                labels, start, at, whole, real = only(
                    p, "attributes", "startTimeUnixNano", "timeUnixNano",
                    "asInt", "asDouble")
                self.assertIsInstance(at, str)
                self.assertLess(abs(int(at) / 1e9 - time.time()), 3600)
                self.assertEqual(start is not None, total is not None)
                if start is not None:
                    self.assertLessEqual(int(start), int(at))
                    begins.add(start)
                self.assertNotEqual(whole is None, real is None)
                if whole is not None:
                    self.assertRegex(whole, r"^\d+$")
                else:
                    self.assertIsInstance(real, (int, float))
                label = "".join(attributes(labels).values()) or None
                self.assertNotIn((name, label), figures)
                figures[name, label] = (float(whole) if whole is not None
                                        else real)
        self.assertEqual(len(begins), 1)
        self.begin = begins.pop()
        return figures, types, resource

    def test_a_collector_gets_what_prometheus_gets(self):
        collector = self.receiver()
        process = self.record(
            "--metrics", "127.0.0.1:0", "--otlp", collector.url,
            "--otlp-every", "200ms",
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20t,x-a=b",
            OTEL_RESOURCE_ATTRIBUTES="team=gpu")
        self.assertIn(f"metrics: sent to {collector.url}/v1/metrics\n",
                      self.said)
        self.wait_for(lambda: len(collector.requests) >= 3)
        prometheus, types = self.scraped()
        err = self.end(process)
        self.assertNotIn("--otlp", err)
        read = []
        begins = set()
        for path, headers, body in collector.requests:
            self.assertEqual(path, "/v1/metrics")
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertEqual(headers["Authorization"], "Bearer t")
            self.assertEqual(headers["X-A"], "b")
            read.append(self.read(body))
            begins.add(self.begin)
        self.assertEqual(len(begins), 1)
        figures, otlp_types, resource = read[-1]
        self.assertEqual(resource["service.name"], "ingero-kprobe")
        self.assertEqual(resource["host.name"], socket.gethostname())
        self.assertEqual(resource["process.pid"], str(process.pid))
        self.assertEqual(resource["team"], "gpu")
        # The same metrics, of the same kinds, and with the same labels.
        self.assertEqual(otlp_types, types)
        self.assertEqual(set(figures), set(prometheus))
        # Counters go on from what was scraped, and from one to the next.
        for before, after in zip([prometheus] + [r[0] for r in read[:-1]],
                                 [figures] + [r[0] for r in read[1:]]):
            for key, value in before.items():
                if key[0].endswith("_total"):
                    self.assertGreaterEqual(after[key], value, key)
        # The last one is what the recording came to.
        recorded = re.search(r"recorded ([\d,]+) switches and ([\d,]+) task "
                             r"events in ([\d.]+) s, lost ([\d,]+)", err)
        number = lambda text: float(text.replace(",", ""))
        self.assertEqual(figures["ingero_switches_recorded_total", None],
                         number(recorded[1]))
        self.assertEqual(figures["ingero_task_events_total", None],
                         number(recorded[2]))
        self.assertAlmostEqual(figures["ingero_recording_seconds", None],
                               number(recorded[3]), delta=0.06)
        self.assertEqual(
            sum(v for k, v in figures.items() if k[0] == "ingero_lost_total"),
            number(recorded[4]))
        files = [os.path.join(self.dir, "trace", f)
                 for f in os.listdir(os.path.join(self.dir, "trace"))]
        self.assertEqual(figures["ingero_written_bytes_total", None],
                         sum(os.path.getsize(f) for f in files
                             if f.endswith(".ingero")))

    def test_a_short_recording_is_told_once(self):
        collector = self.receiver()
        self.end(self.record("--otlp", collector.url))
        self.assertEqual(len(collector.requests), 1)
        self.read(collector.requests[0][2])
        # By the environment alone.
        self.end(self.record(
            "--otlp", OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=collector.url + "/x"))
        self.assertEqual(collector.requests[1][0], "/x")

    def failing(self, url, *args, says, **env):
        """Recording goes on meanwhile, and says it once."""
        process = self.record("--metrics", "127.0.0.1:0", "--otlp", url,
                              "--otlp-every", "100ms", *args, **env)
        before = self.scraped()[0]
        name = "ingero_switches_recorded_total", None
        self.wait_for(lambda: self.scraped()[0][name] > before[name] + 20)
        yield process
        begin = time.monotonic()
        err = self.end(process)
        self.took = time.monotonic() - begin
        self.assertEqual(len(re.findall("recording goes on", err)), 1, err)
        self.assertRegex(err, says)
        summary = re.search(r"--otlp: (\d+) of (\d+) exports to (\S+) failed, "
                            r"the last because (.*)", err)
        self.assertTrue(summary, err)
        self.assertEqual(summary[3], url + "/v1/metrics")
        self.failed, self.tried = int(summary[1]), int(summary[2])
        self.assertRegex(err, r"recorded [1-9][\d,]* switches ")

    def test_one_that_is_away(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
        for _ in self.failing(url, says="Connection refused"):
            pass
        self.assertEqual(self.failed, self.tried)
        # A name that nobody has.
        for _ in self.failing("http://no-such-host.invalid:4318",
                              says="no-such-host.invalid: "):
            pass

    def test_one_that_is_silent(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
            for _ in self.failing(url, says="no answer in time",
                                  OTEL_EXPORTER_OTLP_TIMEOUT="150"):
                time.sleep(1)
            # With a long timeout, too, the end comes soon.
            process = self.record("--otlp", url, "--otlp-every", "100ms",
                                  OTEL_EXPORTER_OTLP_TIMEOUT="3600000")
            s.accept()[0].close()
            time.sleep(0.5)
            self.end(process)

    def test_one_that_reads_slowly_and_one_that_resets(self):
        def serve(server, how):
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    how(connection)

        def slow(connection):
            for _ in range(20):
                if not connection.recv(10):
                    return
                time.sleep(0.02)

        def reset(connection):
            connection.recv(100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  b"\1\0\0\0\0\0\0\0")

        def garbage(connection):
            connection.recv(1 << 20)
            connection.sendall(b"\0\xff" * 100_000)

        def cut(connection):
            connection.recv(1 << 20)
            connection.sendall(b"HTTP/1.1 200 O")
        for how, says in ((slow, "reset|no answer|closed|timed out"),
                          (reset, "reset|Broken pipe|closed"),
                          (garbage, "not HTTP|reset|Broken pipe"),
                          (cut, "its answer was cut|reset|Broken pipe")):
            with self.subTest(how.__name__), \
                    socket.create_server(("127.0.0.1", 0)) as server:
                threading.Thread(target=serve, args=(server, how),
                                 daemon=True).start()
                url = f"http://127.0.0.1:{server.getsockname()[1]}"
                for _ in self.failing(url, says=says,
                                      OTEL_EXPORTER_OTLP_TIMEOUT="300"):
                    time.sleep(0.5)
                server.shutdown(socket.SHUT_RDWR)

    def test_refusals(self):
        for status in 400, 401, 404, 413, 500:
            with self.subTest(status):
                collector = self.receiver(lambda n: (status, {}, b"no"))
                for _ in self.failing(collector.url,
                                      says=f"it answered {status}"):
                    # Final for what was sent; the next goes at its time.
                    self.wait_for(lambda: len(collector.requests) >= 3)
                self.assertEqual(self.failed, self.tried)
                # The end may cut one short, which is not counted.
                self.assertIn(len(collector.requests) - self.tried, (0, 1))

    def test_busy_collectors_are_asked_ever_more_rarely(self):
        for status in 429, 503:
            with self.subTest(status):
                collector = self.receiver(lambda n: (status, {}, b""))
                for _ in self.failing(collector.url,
                                      says=f"it answered {status}"):
                    self.wait_for(lambda: len(collector.requests) >= 5)
                    t = list(collector.times)
                # Half of 100, 200, 400 and 800 ms at least.
                for i, least in enumerate((0.05, 0.1, 0.2, 0.4)):
                    self.assertGreater(t[i + 1] - t[i], least * 0.9)
        # As long as it asks for.
        collector = self.receiver(lambda n: (429, {"Retry-After": "2"}, b""))
        for _ in self.failing(collector.url, says="it answered 429"):
            self.wait_for(lambda: len(collector.requests) >= 2)
            self.assertGreater(collector.times[1] - collector.times[0], 1.9)

    def test_it_goes_on_where_a_collector_comes_back(self):
        collector = self.receiver(lambda n: (503 if n < 3 else 200, {}, b"{}"))
        process = self.record("--otlp", collector.url, "--otlp-every", "100ms")
        self.wait_for(lambda: len(collector.requests) >= 6)
        err = self.end(process)
        self.assertRegex(err, r"--otlp: 2 of \d+ exports")
        # Nothing is missing of counters.
        self.read(collector.requests[-1][2])

    def test_rejected_points_are_said(self):
        collector = self.receiver(lambda n: (200, {}, json.dumps(
            {"partialSuccess": {"rejectedDataPoints": "3"}}).encode()))
        process = self.record("--otlp", collector.url, "--otlp-every", "100ms")
        self.wait_for(lambda: len(collector.requests) >= 3)
        err = self.end(process)
        self.assertEqual(err.count("it rejected 3 data points"), 1, err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kprobe", required=True)
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "ExportTest")
