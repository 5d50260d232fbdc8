#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero export` for trace viewers: what a decoder of its own reads back is
what `ingero query` says, to the nanosecond, and slices nest strictly (CASES 70).

  trace_export_test.py --ingero I --store FOLDER [--run PROGRAM]

With --run, also of a recording made now (calls in calls, started processes).
"""
import argparse
import collections
import csv
import decimal
import io
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import can_load_bpf  # noqa: E402

OPTIONS = None


def ingero(*args, status=0):
    done = subprocess.run([OPTIONS.ingero, *args], capture_output=True,
                          timeout=300)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done


# ---- protobuf's wire format --------------------------------------------------

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """{number: [value]}: integers, 8 raw bytes, or the bytes of a message."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "a message ends early"
        else:
            raise AssertionError(f"wire type {kind}")
        found[key >> 3].append(value)
    return found


def one(message, number, default=None):
    values = message.get(number, [])
    assert len(values) <= 1, (number, values)
    return values[0] if values else default


def text(message, number):
    return one(message, number, b"").decode("utf-8")  # strict


class Slice:
    def __init__(self, name, begin, args):
        self.name, self.begin, self.args, self.end = name, begin, args, None
        self.depth = 0


class Perfetto:
    """A trace file as its reader sees it."""

    def __init__(self, data):
        self.processes, self.threads, self.tracks = {}, {}, {}
        self.counters = collections.defaultdict(list)
        self.slices = collections.defaultdict(list)  # by track
        self.switches, self.wakings = [], []
        self.clocks = {}
        self.release = None
        names = {2: {}, 3: {}, 29: {}}
        stacks, last = collections.defaultdict(list), {}
        cleared = False
        for raw in fields(data)[1]:
            packet = fields(raw)
            assert one(packet, 10) == 1
            flags = one(packet, 13, 0)
            cleared |= bool(flags & 1)
            assert cleared or not flags & 2
            for index, entries in fields(one(packet, 12, b"")).items():
                for entry in entries:
                    entry = fields(entry)
                    assert one(entry, 1) not in names[index]
                    names[index][one(entry, 1)] = text(entry, 2)
            for clock in fields(one(packet, 6, b"")).get(1, []):
                clock = fields(clock)
                self.clocks[one(clock, 1)] = one(clock, 2)
            if 45 in packet:
                self.release = text(fields(one(fields(one(packet, 45)), 1)), 3)
            if 60 in packet:
                self.track(fields(one(packet, 60)))
            if 1 in packet:
                self.ftrace(fields(one(packet, 1)))
            if 11 not in packet:
                continue
            event, t = fields(one(packet, 11)), one(packet, 8)
            track, kind = one(event, 11), one(event, 9)
            assert track in self.tracks or track in self.threads, track
            if kind == 4:
                value, = struct.unpack("<d", one(event, 44))
                self.counters[self.tracks[track][0]].append((t, value))
                continue
            assert t >= last.get(track, 0), "time goes backward on a track"
            last[track] = t
            stack = stacks[track]
            if kind == 1:
                args = {}
                for arg in event.get(4, []):
                    arg = fields(arg)
                    value = one(arg, 4)
                    if value is None:
                        value = (names[29][one(arg, 17)] if 17 in arg
                                 else text(arg, 6))
                    elif value >= 1 << 63:
                        value -= 1 << 64
                    args[names[3][one(arg, 1)]] = value
                s = Slice(names[2][one(event, 10)], t, args)
                s.depth = len(stack)
                stack.append(s)
                self.slices[track].append(s)
            else:
                assert kind == 2 and stack, "an end without a begin"
                stack.pop().end = t
        assert not any(stacks.values()), "a begin without an end"

    def track(self, d):
        uuid = one(d, 1)
        if 3 in d:
            p = fields(one(d, 3))
            self.processes[uuid] = (one(p, 1), text(p, 6))
            self.tracks[uuid] = (text(p, 6), None)
        elif 4 in d:
            t = fields(one(d, 4))
            self.threads[uuid] = (one(t, 1), one(t, 2), text(t, 5))
        else:
            parent = one(d, 5)
            assert parent is None or parent in self.processes
            self.tracks[uuid] = (text(d, 2), parent)

    def ftrace(self, bundle):
        cpu = one(bundle, 1)
        for event in bundle[2]:
            event = fields(event)
            t, pid = one(event, 1), one(event, 2)
            if 4 in event:
                s = fields(one(event, 4))
                assert one(s, 2) == pid
                self.switches.append((t, cpu, one(s, 2), one(s, 4), one(s, 6)))
            else:
                w = fields(one(event, 20))
                self.wakings.append((t, pid, one(w, 2)))

    def below(self, prefix):
        """Slices of the tracks of a process that are called so."""
        return [s for uuid, (name, _) in self.tracks.items()
                if name.startswith(prefix) for s in self.slices[uuid]]


class Exported:
    def check_all(self, store):
        self.store = store
        self.folder = tempfile.mkdtemp(prefix="ingero-export-")
        self.addCleanup(shutil.rmtree, self.folder)
        path = os.path.join(self.folder, "run.pftrace")
        done = ingero("export", "--db", store, "--format", "perfetto", "-o",
                      path)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertEqual(os.listdir(self.folder), ["run.pftrace"])
        with open(path, "rb") as f:
            trace = Perfetto(f.read())
        self.check_tracks(trace)
        self.check_calls(trace)
        self.check_scheduling(trace)
        self.check_feeding(trace)
        self.check_causes(trace)
        self.check_counters(trace)
        self.check_chrome(trace)
        self.check_csv()

    def query(self, sql):
        out = ingero("query", "--db", self.store, "--format", "jsonl", sql)
        return [list(json.loads(x).values()) for x in out.stdout.splitlines()]

    def check_tracks(self, trace):
        self.assertEqual(
            collections.Counter(pid for pid, _ in trace.processes.values()),
            collections.Counter(r[0] for r in
                                self.query("SELECT pid FROM processes")))
        self.assertEqual(
            collections.Counter((p, t) for p, t, _ in trace.threads.values()),
            collections.Counter(map(tuple, self.query(
                "SELECT pid, tid FROM threads WHERE pid IS NOT NULL"))))
        begin, = self.query("SELECT min(t) FROM (SELECT min(begin_ns) AS t FROM"
                            " calls UNION SELECT min(t_ns) FROM switches)")[0]
        if trace.clocks:
            self.assertLessEqual(trace.clocks[6], begin)
            self.assertGreater(trace.clocks[1], 10**18)

    def check_calls(self, trace):
        found = collections.defaultdict(list)
        for uuid, (pid, tid, _) in trace.threads.items():
            for s in trace.slices[uuid]:
                self.assertNotIn("cut_ns", s.args)
                found[pid, tid, s.name].append((s.begin, s.end - s.begin))
        stored = collections.defaultdict(list)
        for pid, tid, name, begin, ns in self.query(
                "SELECT pid, tid, name, begin_ns, duration_ns FROM calls "
                "WHERE tid IS NOT NULL"):
            stored[pid, tid, name].append((begin, ns))
        self.assertTrue(stored)
        self.assertEqual({k: sorted(v) for k, v in found.items()},
                         {k: sorted(v) for k, v in stored.items()})
        # A runtime call holds the driver calls that it makes.
        self.assertTrue(any(s.depth > 0 for u in trace.threads
                            for s in trace.slices[u]))
        kernels = collections.Counter(
            s.args["kernel"] for u in trace.threads for s in trace.slices[u]
            if "kernel" in s.args)
        self.assertEqual(kernels, collections.Counter(
            r[0] for r in self.query(
                "SELECT kernel FROM calls WHERE kernel IS NOT NULL AND "
                "class = 'launch' AND tid IS NOT NULL")))

    def check_scheduling(self, trace):
        rows = self.query(
            "SELECT t_ns, cpu, prev_tid, prev_state, preempted, next_tid, "
            "wake_ns, waker_tid FROM switches")
        self.assertEqual(len(trace.switches), len(rows))
        states = {"running": 0, "runnable": 0, "sleeping": 1, "disk": 2,
                  "blocked": 2, "stopped": 4, "dead": 16, "unknown": 128}
        wakings = []
        for (t, cpu, prev, state, next_), row in zip(trace.switches, rows):
            self.assertEqual((t, cpu), tuple(row[:2]))
            if row[2]:
                self.assertEqual(prev, row[2])
                self.assertEqual(
                    state, 256 if row[4] and row[3] == "runnable"
                    else states[row[3]])
            if row[5]:
                self.assertEqual(next_, row[5])
            if row[6] is not None:
                wakings.append((row[6], row[7] or 0, next_))
        self.assertEqual(trace.wakings, wakings)
        # Without it Perfetto takes the states for those of Linux 4.4.
        self.assertEqual(trace.release, "4.14.0")

    def check_feeding(self, trace):
        found = collections.Counter()
        for s in trace.below("GPU 0: "):
            found[s.name] += s.args["ns"]
        self.assertEqual(dict(found), dict(map(tuple, self.query(
            "SELECT state, sum(ns) FROM feed WHERE device = 0 "
            "GROUP BY state"))))

    def check_causes(self, trace):
        starved = collections.Counter()
        for s in trace.below("GPU starved, for: "):
            starved[s.name] += s.args["ns"]
        folded = collections.Counter()
        total = 0
        out = ingero("export", "--db", self.store, "--format", "folded", "-o",
                     "-").stdout.decode()
        for line in out.splitlines():
            stack, ns = line.rsplit(" ", 1)
            folded[stack.split(";")[1]] += int(ns)
            total += int(ns)
            self.assertGreaterEqual(len(stack.split(";")), 3)
        self.assertEqual(total, self.query("SELECT sum(ns) FROM path")[0][0])
        for cause, ns in starved.items():
            self.assertEqual(folded[cause], ns, cause)
        rows = self.query("SELECT cause, claim FROM findings")
        self.assertTrue(rows)
        for cause, claim in rows:
            slices = trace.below("finding: " + cause)
            if slices:
                self.assertIn(claim, [s.args["claim"] for s in slices])
        self.assertTrue(trace.below("finding: "))
        # What a finding has lost is what its slices say.
        for s in trace.below("finding: "):
            if s.name in starved and s.name != "cold-start":
                self.assertLessEqual(s.args["lost_ns"], starved[s.name])

    def check_counters(self, trace):
        rows = self.query("SELECT t_ns, value FROM system WHERE metric = "
                          "'mem.available' ORDER BY t_ns")
        self.assertEqual([list(x) for x in
                          trace.counters.get("mem.available (bytes)", [])],
                         rows)
        for name, values in trace.counters.items():
            times = [t for t, _ in values]
            self.assertEqual(times, sorted(times))
            if name.startswith("psi."):
                self.assertTrue(all(0 <= v < 120 for _, v in values), name)

    def check_chrome(self, trace):
        out = ingero("export", "--db", self.store, "--format", "chrome", "-o",
                     "-").stdout.decode()
        data = json.loads(out, parse_float=decimal.Decimal)
        begin = data["otherData"]["begin_ns"]
        stacks = collections.defaultdict(list)
        totals, cpus = collections.Counter(), 0
        for e in data["traceEvents"]:
            track = e["pid"], e.get("tid")
            if e["ph"] == "B":
                cpus += e["pid"] == 10**9
                stacks[track].append(e)
            elif e["ph"] == "E":
                b = stacks[track].pop()
                ns = (decimal.Decimal(e["ts"]) - decimal.Decimal(b["ts"])) * 1000
                self.assertEqual(ns, int(ns))
                self.assertGreaterEqual(ns, 0)
                totals[b["name"]] += int(ns)
        self.assertFalse([s for (pid, _), s in stacks.items()
                          if s and pid != 10**9])
        for name, ns in self.query(
                "SELECT name, sum(duration_ns) FROM calls WHERE tid IS NOT "
                "NULL GROUP BY name"):
            self.assertEqual(totals[name], ns, name)
        self.assertEqual(cpus, sum(1 for s in trace.switches if s[4]
                                   not in (0, 0x7fffffff)))
        self.assertGreater(begin, 0)

    def check_csv(self):
        folder = os.path.join(self.folder, "tables")
        ingero("export", "--db", self.store, "--format", "csv", "-o", folder)
        names = {json.loads(x)["name"] for x in ingero(
            "query", "--db", self.store, "--schema", "--format",
            "jsonl").stdout.splitlines() if json.loads(x)["kind"] == "table"}
        self.assertEqual(set(os.listdir(folder)), {n + ".csv" for n in names})
        for name in names:
            with open(os.path.join(folder, name + ".csv"), "rb") as f:
                written = f.read()
            self.assertEqual(written, ingero(
                "query", "--db", self.store, "--format", "csv",
                "SELECT * FROM " + name).stdout)
        rows = list(csv.reader(io.StringIO(written.decode())))
        self.assertEqual({len(r) for r in rows}, {len(rows[0])})


class KeptStoreTest(Exported, unittest.TestCase):
    def test_an_output_that_is_no_plain_file_stays_what_it_is(self):
        folder = tempfile.mkdtemp(prefix="ingero-export-")
        self.addCleanup(shutil.rmtree, folder)
        for command in (["export", "--format", "folded"],):
            want = os.path.join(folder, "plain")
            ingero(*command, "--db", OPTIONS.store, "-o", want)
            with open(want, "rb") as f:
                text = f.read()
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as cat:
                ingero(*command, "--db", OPTIONS.store, "-o", pipe)
                self.assertEqual(cat.communicate(timeout=60)[0], text)
            self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))
            os.unlink(pipe)
            # A link: what it names gets the text, and keeps its mode.
            real, link = (os.path.join(folder, x) for x in ("real", "link"))
            for exists in False, True:
                os.symlink("real", link)
                if exists:
                    os.chmod(real, 0o600)
                    with open(real, "w") as f:
                        f.write("old")
                ingero(*command, "--db", OPTIONS.store, "-o", link)
                self.assertTrue(os.path.islink(link))
                with open(real, "rb") as f:
                    self.assertEqual(f.read(), text)
                os.unlink(link)
            self.assertEqual(stat.S_IMODE(os.stat(real).st_mode), 0o600)
            os.unlink(real)
            for bad in folder, os.path.join(want, "x"), folder + "/no/x":
                said = ingero(*command, "--db", OPTIONS.store, "-o", bad,
                              status=1).stderr.decode()
                self.assertEqual(said.count("\n"), 1, said)
                self.assertIn(bad, said)
                self.assertNotIn(".part", said)
            self.assertEqual(os.listdir(folder), ["plain"])

    def test_every_format(self):
        self.check_all(OPTIONS.store)

    def test_perfettos_own_schema_knows_all_of_it(self):
        """No field that its protobuf has not, or has with another type: such a
        one is skipped in silence, and is missing on the screen."""
        try:
            from google.protobuf.unknown_fields import UnknownFieldSet
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        except ImportError as e:
            self.skipTest(f"{e} (pip install perfetto)")
        out = ingero("export", "--db", OPTIONS.store, "--format", "perfetto",
                     "--since", "2s", "-o", "-").stdout
        trace = perfetto_trace_pb2.Trace()
        self.assertEqual(trace.ParseFromString(out), len(out))
        self.assertGreater(len(trace.packet), 1000)

        def walk(message):
            self.assertEqual(
                [u.field_number for u in UnknownFieldSet(message)], [],
                message.DESCRIPTOR.full_name)
            for field, value in message.ListFields():
                if field.message_type is None:
                    continue
                try:
                    messages = iter(value)
                except TypeError:
                    messages = [value]
                for inner in messages:
                    walk(inner)
        walk(trace)

    def test_a_window(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "part")
            ingero("export", "--db", OPTIONS.store, "--format", "perfetto",
                   "--since", "2s", "-o", path)
            with open(path, "rb") as f:
                trace = Perfetto(f.read())
        times = [s.begin for u in trace.threads for s in trace.slices[u]]
        self.assertTrue(times)
        self.assertLessEqual(max(times) - min(times), 2 * 10**9)

    def test_wrong_usage_is_one_line(self):
        for args, status, says in (
                (["--format", "perfeto", "-o", "x"], 2, "perfetto"),
                (["--format", "perfetto"], 2, "run.pftrace"),
                (["--format", "csv"], 2, "-o"),
                (["--format", "csv", "-o", "-"], 2, "folder"),
                (["--format", "csv", "-o", "x", "--since", "1s"], 2,
                 "--since"),
                (["--format", "folded", "-o", "x", "--tables", "calls"], 2,
                 "--tables"),
                (["--format", "folded", "-o", "/nowhere/x"], 1, "/nowhere"),
                (["--format", "perfetto", "-o", "/tmp"], 1, "/tmp"),
                (["--format", "csv", "-o", "/dev/null"], 1, "/dev/null"),
                (["--format", "csv", "-o", "/tmp", "--tables", "cals"], 2,
                 "calls")):
            done = ingero("export", "--db", OPTIONS.store, *args,
                          status=status)
            self.assertEqual(done.stdout, b"", args)
            self.assertEqual(done.stderr.count(b"\n"), 1, args)
            self.assertIn(says, done.stderr.decode())
        self.assertFalse(os.path.exists("/tmp.part"))

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([OPTIONS.ingero, "export", "--db",
                                   OPTIONS.store, "--format", "chrome", "-o",
                                   "-"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"space", done.stderr)


class RecordedTest(Exported, unittest.TestCase):
    def test_every_format(self):
        folder = tempfile.mkdtemp(prefix="ingero-export-run-")
        self.addCleanup(shutil.rmtree, folder)
        store = os.path.join(folder, "run.store")
        ingero("run", "-q", "--dir", folder, "-o", store, OPTIONS.run,
               "--steps", "40")
        self.check_all(store)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--run")
    OPTIONS, rest = parser.parse_known_args()
    can_load_bpf.run_tests(rest, "RecordedTest")
