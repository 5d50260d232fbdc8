#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero import`: files as torch.profiler and nsys write them, made here with
known truth; what explain and SQL say of the store is compared with that."""
import argparse
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
import unittest

OPTIONS = None
BEGIN_US = 1_700_000_000_000_000
PID, TID = 4321, 4321
STEPS = 40
# A step, in us: the launch's begin, the kernel's begin and end, the sync.
STEP, LAUNCH, KERNEL, KERNEL_END, SYNC_END = 10_000, 0, 20, 2_020, 2_040


def kineto():
    """10 ms steps of which the GPU has work for 2.02."""
    events = [{"ph": "M", "name": "process_name", "pid": PID, "tid": 0,
               "ts": BEGIN_US, "args": {"name": "python3"}}]

    def event(cat, name, begin, end, pid=PID, tid=TID, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid,
                       "tid": tid, "ts": BEGIN_US + begin,
                       "dur": end - begin, "args": args})
    for i in range(STEPS):
        t = i * STEP
        event("user_annotation", f"step {i}", t, t + SYNC_END)
        event("cuda_runtime", "cudaLaunchKernel", t + LAUNCH, t + LAUNCH + 8,
              correlation=2 * i + 1)
        event("kernel", "void add_kernel<float>(float*)", t + KERNEL,
              t + KERNEL_END, pid=0, tid=7, device=0, stream=7,
              correlation=2 * i + 1)
        event("cuda_runtime", "cudaDeviceSynchronize", t + LAUNCH + 10,
              t + SYNC_END, correlation=2 * i + 2)
    return {"schemaVersion": 1, "traceEvents": events}


def nsys(path):
    """The same, as an export of Nsight Systems has it."""
    db = sqlite3.connect(path)
    db.executescript("""
      CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, "end" INT,
        eventClass INT, globalTid INT, correlationId INT, nameId INT,
        returnValue INT, callchainId INT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, "end" INT,
        deviceId INT, contextId INT, streamId INT, correlationId INT,
        globalPid INT, demangledName INT, shortName INT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, "end" INT,
        deviceId INT, streamId INT, correlationId INT, globalPid INT,
        bytes INT, copyKind INT, srcKind INT, dstKind INT);
      CREATE TABLE NVTX_EVENTS(start INT, "end" INT, eventType INT,
        globalTid INT, text TEXT, textId INT);
      CREATE TABLE ThreadNames(nameId INT, priority INT, globalTid INT);
      CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INT);
      CREATE TABLE TARGET_INFO_SYSTEM_ENV(name TEXT, value TEXT);
      CREATE TABLE OSRT_API(start INT);
    """)
    db.executemany("INSERT INTO StringIds VALUES(?, ?)", [
        (1, "cudaLaunchKernel_v7000"), (2, "cudaDeviceSynchronize_v3020"),
        (3, "void add_kernel<float>(float*)"), (4, "python3"),
        (5, "cudaMemcpy_v3020")])
    process = (1 << 48) | PID << 24
    thread = process | TID
    for i in range(STEPS):
        t = i * STEP * 1000
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES"
                   "(?, ?, 0, ?, ?, 1, 0, NULL)",
                   (t, t + 8000, thread, 2 * i + 1))
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES"
                   "(?, ?, 0, ?, ?, 2, 0, NULL)",
                   (t + 10_000, t + SYNC_END * 1000, thread, 2 * i + 2))
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
                   "(?, ?, 0, 1, 7, ?, ?, 3, 3)",
                   (t + KERNEL * 1000, t + KERNEL_END * 1000, 2 * i + 1,
                    process))
        db.execute("INSERT INTO NVTX_EVENTS VALUES(?, ?, 59, ?, ?, NULL)",
                   (t, t + SYNC_END * 1000, thread, f"step {i}"))
    db.execute("INSERT INTO NVTX_EVENTS VALUES(5, NULL, 34, ?, 'mark', NULL)",
               (thread,))
    end = STEPS * STEP * 1000
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES"
               "(?, ?, 0, ?, ?, 5, 0, NULL)",
               (end, end + 100_000, thread, 1000))
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES"
               "(?, ?, 0, 7, 1000, ?, 1048576, 1, 1, 3)",
               (end + 10_000, end + 90_000, process))
    db.execute("INSERT INTO ThreadNames VALUES(4, 20, ?)", (thread,))
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES(?)",
               (BEGIN_US * 1000,))
    db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES('Hostname', 'box')")
    db.executemany("INSERT INTO OSRT_API VALUES(?)", [(1,), (2,)])
    db.commit()
    db.close()


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-import-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("INGERO_")}

    def ingero(self, *args, status=0):
        done = subprocess.run([OPTIONS.ingero, *args], cwd=self.dir,
                              env=self.env, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def write(self, name, what):
        path = os.path.join(self.dir, name)
        with (gzip.open(path, "wt") if name.endswith(".gz")
              else open(path, "w")) as f:
            json.dump(what, f)
        return path

    def rows(self, store, sql):
        return json.loads("[" + ",".join(self.ingero(
            "query", "--db", store, "--format", "jsonl", sql).stdout
            .split("\n")[:-1]) + "]")

    def check(self, store, name):
        """Against what kineto() and nsys() planted."""
        report = json.loads(self.ingero("explain", "--db", store,
                                        "--json").stdout)
        self.assertEqual([p["pid"] for p in report["processes"]], [PID])
        feeding = self.rows(store, "SELECT state, sum(ns) AS ns FROM feed "
                                   "GROUP BY state")
        ns = {r["state"]: r["ns"] for r in feeding}
        # What the GPU did is known, so nothing of it is not.
        self.assertEqual(set(ns), {"idle", "busy"}, ns)
        # From each launch to its kernel's end, then idle until the next launch.
        self.assertEqual(ns["busy"] // STEPS // 1000, KERNEL_END)
        self.assertEqual(ns["idle"] // (STEPS - 1) // 1000, STEP - KERNEL_END)
        kernels = self.rows(store, "SELECT name, count(*) AS n, "
                                   "sum(duration_ns) AS ns, min(gpu) AS gpu "
                                   "FROM gpu_activity WHERE kind = 'kernel' "
                                   "GROUP BY name")
        self.assertEqual(kernels, [{"name": "void add_kernel<float>(float*)",
                                    "n": STEPS, "gpu": 0,
                                    "ns": STEPS * 1000 * (KERNEL_END - KERNEL)}])
        ours = self.rows(store, "SELECT count(*) AS n FROM gpu_activity g JOIN "
                                "calls c ON c.begin_ns = g.call_ns AND "
                                "c.name = 'cudaLaunchKernel' "
                                "WHERE c.kernel = g.name")
        self.assertEqual(ours, [{"n": STEPS}])
        steps = self.rows(store, "SELECT count(*) AS n FROM nvtx "
                                 "WHERE name LIKE 'step %'")
        self.assertEqual(steps, [{"n": STEPS}])
        text = " ".join(self.ingero("explain", "--db", store).stdout.split())
        self.assertIn("imported from " + name, text)
        self.assertIn("what tracing cost is not known", text)
        # ingero-kprobe beside the profiler would be joined with nothing.
        self.assertNotIn("ingero-kprobe", text)
        self.assertNotIn("--where", text)
        self.assertIn("import it together with what perf recorded", text)
        self.assertIn("says nothing of the scheduler", text)
        return report

    def test_torch_profiler(self):
        for file in "a.json", "b.json.gz":
            done = self.ingero("import", self.write(file, kineto()))
            store = file.split(".")[0] + ".store"
            self.assertEqual(done.stdout, "")
            self.assertIn(f"ingero explain --db {store}", done.stderr)
            report = self.check(store, "torch.profiler")
            self.assertEqual(
                report["trace"]["wall_clock_anchor"]["realtime_ns"],
                BEGIN_US * 1000)
        # The same events, the same answer.
        a, b = (json.loads(self.ingero("explain", "--json", "--db",
                                       s + ".store").stdout) for s in "ab")
        self.assertEqual(a["verdict"], b["verdict"])

    def test_times_that_have_no_zero(self):
        """When it was imported is not when it was recorded."""
        trace = kineto()
        for e in trace["traceEvents"]:
            if "ts" in e:
                e["ts"] -= BEGIN_US
        self.ingero("import", self.write("r.json", trace))
        report = json.loads(self.ingero("explain", "--json", "--db",
                                        "r.store").stdout)
        self.assertIsNone(report["trace"].get("wall_clock_anchor"))
        year = time.strftime("%Y")
        for words in (["explain"], ["store", "info"], ["stats"],
                      ["timeline", "--tid", str(TID)]):
            text = self.ingero(*words, "--db", "r.store").stdout
            self.assertNotRegex(text, r"\d\d:\d\d:\d\d")
            self.assertNotIn(year + "-", text)
            self.assertNotIn("1970", text)

    def test_pictures_of_it(self):
        """Kernels and ranges are drawn where they were."""
        self.ingero("import", self.write("a.json", kineto()))
        self.ingero("export", "--db", "a.store", "--format", "chrome", "-o",
                    "a.chrome.json")
        with open(os.path.join(self.dir, "a.chrome.json")) as f:
            events = json.load(f)["traceEvents"]
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
                  if e["ph"] == "M" and e["name"] == "thread_name"}
        drawn = {}
        for e in events:
            if e["ph"] == "X" or e["ph"] == "B":
                drawn.setdefault(tracks.get((e["pid"], e["tid"])),
                                 []).append(e)
        kernels = drawn["GPU 0, stream 7"]
        self.assertEqual(len(kernels), STEPS)
        self.assertEqual({e["name"] for e in kernels},
                         {"void add_kernel<float>(float*)"})
        steps = drawn[f"NVTX user, thread {TID}"]
        self.assertEqual([e["name"] for e in steps],
                         [f"step {i}" for i in range(STEPS)])
        # From the step's begin to the kernel's.
        self.assertAlmostEqual(kernels[3]["ts"] - steps[3]["ts"], KERNEL, 3)

    def test_nsight_systems(self):
        path = os.path.join(self.dir, "r.sqlite")
        nsys(path)
        # A pageable copy ends it, which feeds nothing: as in check(), but for
        # that.
        db = sqlite3.connect(path)
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId = 5")
        db.commit()
        db.close()
        done = self.ingero("import", path, "-o", "n.store")
        self.assertRegex(" ".join(done.stderr.split()), "left out 2 OSRT_API")
        self.check("n.store", "Nsight Systems")

    def test_copies(self):
        path = os.path.join(self.dir, "r.sqlite")
        nsys(path)
        self.ingero("import", path)
        copies = self.rows("r.store", "SELECT name, bytes, direction, "
                                      "host_memory, stream FROM calls "
                                      "WHERE bytes > 0")
        self.assertEqual(copies, [{"name": "cudaMemcpy", "bytes": 1048576,
                                   "direction": "host-to-device",
                                   "host_memory": "pageable", "stream": 7}])
        feeding = self.rows("r.store", "SELECT sum(ns) AS ns FROM feed "
                                       "WHERE state = 'host-copy'")
        self.assertEqual(feeding, [{"ns": 100_000}])

    def test_work_that_nobody_gave(self):
        """As before the profiler began: busy, whoever gave it, is not known."""
        trace = kineto()
        trace["traceEvents"] = [e for e in trace["traceEvents"]
                                if e["args"].get("correlation") != 1]
        trace["traceEvents"].append(
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7,
             "ts": BEGIN_US - 100, "dur": 50,
             "args": {"device": 0, "stream": 7, "correlation": 99}})
        done = self.ingero("import", self.write("t.json", trace))
        self.assertIn("1 activity of the GPU without the call",
                      " ".join(done.stderr.split()))
        # A launch whose kernel is not in the file: its end is not known.
        trace = kineto()
        trace["traceEvents"] = [e for e in trace["traceEvents"]
                                if not (e.get("cat") == "kernel" and
                                        e["args"]["correlation"] == 41)]
        self.ingero("import", self.write("u.json", trace))
        ns = {r["state"]: r["ns"] for r in self.rows(
            "u.store", "SELECT state, sum(ns) AS ns FROM feed GROUP BY state")}
        self.assertEqual(ns["busy"] // 1000,
                         (STEPS - 1) * KERNEL_END + SYNC_END - 10, ns)

    def test_a_mark_of_the_byte_order(self):
        path = os.path.join(self.dir, "bom.json")
        with open(path, "w", encoding="utf-8-sig") as f:
            json.dump(kineto(), f)
        done = subprocess.run([OPTIONS.ingero, "import", path, "-o",
                               self.dir + "/bom.store"], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_cannot_be_read_says_what_to_do(self):
        cut = os.path.join(self.dir, "cut.json.gz")
        with open(cut, "wb") as f:
            whole = gzip.compress(json.dumps(kineto()).encode())
            f.write(whole[:len(whole) // 2])
        pipe, loop = self.dir + "/pipe", self.dir + "/loop"
        os.mkfifo(pipe)
        os.symlink(loop, loop)
        for path, says in ((cut, "unexpected end of file"),
                           (pipe, "name a file"), (loop, "name the file"),
                           (self.dir + "/nope", "give the path")):
            done = subprocess.run([OPTIONS.ingero, "import", path, "-o",
                                   self.dir + "/x.store"], text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertNotIn("<fd:", done.stderr)

    def test_what_is_refused(self):
        good = self.write("good.json", kineto())
        with open(os.path.join(self.dir, "rep.nsys-rep"), "w") as f:
            f.write("x")
        for status, args, says in (
                (2, [], "give the file"),
                (2, ["--nonsense", good], "--nonsense"),
                (1, ["none.json"], "none.json"),
                (1, ["rep.nsys-rep"], "nsys export --type sqlite"),
                (1, ["."], ""),
                (1, [good, "-o", "no/such/x.store"], "no/such"),
                (1, [good, "-o", "good.json"], "is no store")):
            done = self.ingero("import", *args, status=status)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)
        # Nothing is left of them.
        self.assertEqual(sorted(os.listdir(self.dir)),
                         ["good.json", "rep.nsys-rep"])
        self.assertEqual(
            self.ingero("import", "-q", good, "-o", "q.store").stderr, "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ingero", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[__file__, "-v", *rest])
