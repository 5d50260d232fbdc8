#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole way on simulated CUDA and real eBPF: what was planted must be what
is stored.

  calls    calls made = calls arrived in the simulated driver = calls stored
  states   thread states of three planted threads right for 99 % of the time
  join     start <= switch-out <= switch-in <= end for 99.9 % of 10,000 calls
           that sleep (CASES 35)
  splits   the parts of each call's split sum to its duration
  again    a second merge changes nothing
  demo     the demo's GPU was without work for at least as long as explain says
  own      merges that take the trainer's CPU are marked as ingero's own, named
           in no finding, and what the trainer waited for them is told apart
           (CASES 39)

The last line is "N passed, N failed, N skipped"."""

import argparse
import bisect
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "truth"))
from recorded_run import RecordedRun, RunError, Skip  # noqa: E402
from recorded_run import skip_all_unless_possible  # noqa: E402

CLOCK_NANOSLEEP = 230  # x86-64; rows hold number + 1
KINDS = ("running", "runnable", "sleeping", "io")
# Bits of switches.flags, wire/wire.h.
PREEMPTED, YIELDED, IOWAIT = 1, 2, 4
SWITCH_UNSEEN = 21  # enum ingero_loss
# Some kernels hide tasks from BPF (of a sandbox's own). How often those run is
# the machine's affair: up to this share is left out, each told as unknown.
MAX_HIDDEN = 0.1


class Wrong(Exception):
    """A promise was not kept."""


def expect(condition, text):
    if not condition:
        raise Wrong(text)


class Recording:
    """One planted run, merged, with lazily dumped tables."""

    def __init__(self, run, args, environment=None):
        self.run = run
        truth_file = run.dir / "truth.json"
        run.record([run.build / "bin" / "starve_sim", *args,
                    "--truth", truth_file, "--data-dir", run.dir],
                   environment=environment)
        self.truth = json.loads(truth_file.read_text())
        run.merge()
        self.report = run.explain()
        self.store = self.report["trace"]["store"]
        self.tables = {}

    def rows(self, table):
        if table not in self.tables:
            self.tables[table] = self.run.dump(self.store, table)
        return self.tables[table]

    def complain_about_losses(self):
        for loss in self.report["trace"]["losses"]:
            if loss.get("severity") == "loss":
                raise Wrong(f"data were lost: {loss['text']} "
                            f"({loss['count']})")

    def calls_of(self, tid):
        return [c for c in self.rows("calls") if c["tid"] == tid]

    def unseen(self):
        """[(from, to)] in which the kernel did not show a switch."""
        return [(r["t_ns"], r["end_ns"]) for r in self.rows("losses")
                if r["loss"] in ("switch-unseen", SWITCH_UNSEEN)]

    def off_cpu(self, tid):
        """[(out, in, row of switch-out, row of switch-in)] of a thread, in
        order. Where the switch-in was not seen, its row is None and `in` is
        the next switch-out: in between the state is not known."""
        events = []
        for s in self.rows("switches"):
            if s["prev_tid"] == tid:
                events.append((s["t_ns"], 0, s))
            if s["next_tid"] == tid:
                events.append((s["t_ns"], 1, s))
        events.sort(key=lambda e: (e[0], e[1]))
        result, out = [], None
        for t, is_in, row in events:
            if not is_in:
                if out is not None:
                    result.append((out[0], t, out[1], None))
                out = (t, row)
            elif out is not None:
                result.append((out[0], t, out[1], row))
                out = None
        return result


def check_calls(rec, run):
    """Needs FAKE_CUDA_COUNTS in run.dir/counts."""
    pid = rec.truth["pid"]
    arrived = collections.Counter()
    for layer in ("cudart", "cuda"):
        path = run.dir / "counts" / f"{pid}.{layer}.json"
        expect(path.exists(), f"the simulated {layer} wrote no counts")
        arrived.update(json.loads(path.read_text()))
    for name, count in rec.truth["calls"].items():
        expect(arrived[name] == count,
               f"{name}: made {count}, arrived {arrived[name]}")
    stored = collections.Counter(c["name"] for c in rec.rows("calls"))
    skipped = sum(s["skipped_calls"] for s in rec.rows("streams")
                  if s["pid"] == pid and not s["kernel"])
    for name, count in arrived.items():
        # A function is left out by choice as a whole, or not at all.
        expect(stored[name] in (0, count),
               f"{name}: arrived {count}, stored {stored[name]}")
    for name in rec.truth["calls"]:
        expect(stored[name] > 0, f"{name}: made, but not one stored")
    extra = set(stored) - set(arrived)
    expect(not extra, f"stored but never made: {sorted(extra)}")
    expect(sum(arrived.values()) == sum(stored.values()) + skipped,
           f"arrived {sum(arrived.values())}, stored {sum(stored.values())}, "
           f"left out by choice {skipped}")
    operations = sum(o["count"] + o["first_uses"]
                     for o in rec.report["operations"])
    return (f"{sum(arrived.values())} arrived = {sum(stored.values())} stored "
            f"+ {skipped} left out; {operations} in operations")


def thread_segments(rec, tid, begin, end):
    """[(from, to, kind)] over [begin, end) from the switches alone."""
    segments, last = [], begin
    for out, back, row_out, row_in in rec.off_cpu(tid):
        if back <= begin or out >= end:
            continue
        if out > last:
            segments.append((last, out, "running"))
        if row_in is None:
            segments.append((out, back, "unknown"))
        elif row_out["flags"] & (PREEMPTED | YIELDED):
            segments.append((out, back, "runnable"))
        else:
            kind = "io" if row_out["flags"] & IOWAIT else "sleeping"
            woken = row_in.get("wake_ns", 0)
            if out < woken < back:
                segments.append((out, woken, kind))
                segments.append((woken, back, "runnable"))
            else:
                segments.append((out, back, kind))
        last = back
    if last < end:
        segments.append((last, end, "running"))
    return segments


def check_states(rec):
    """Each planted stretch: its off-CPU time must be of the planted kind. A
    thread that was woken may also wait for a CPU, by the kernel's count, and
    what it used of the CPU by its own clock is running."""
    rec.complain_about_losses()
    texts = []
    for thread in rec.truth["states"]:
        if not thread["intervals"]:
            raise Skip(f"{thread['name']} could not be planted here")
        begin = thread["intervals"][0][0]
        end = thread["intervals"][-1][1]
        segments = thread_segments(rec, thread["tid"], begin, end)
        expect(segments, f"{thread['name']}: tid {thread['tid']} is not in "
               "the recording")
        starts = [s[0] for s in segments]
        total = right = unknown = hidden = 0
        for a, b, kind, cpu, waited, switches, rival in thread["intervals"]:
            by_kind = collections.Counter()
            i = max(0, bisect.bisect_right(starts, a) - 1)
            lost_cpu = 0
            while i < len(segments) and segments[i][0] < b:
                s, e, k = segments[i]
                by_kind[k] += max(0, min(e, b) - max(s, a))
                lost_cpu += k == "runnable" and s >= a
                i += 1
            # It was without a CPU at least while its rival ran on it. Where
            # another took the CPU, the kernel's count of the wait stands in:
            # it begins with the wake of that one, so half of it is asked for.
            off = rival if rival > 0 else max(0, waited) // 2
            if kind == "runnable" and lost_cpu < switches and \
                    by_kind["running"] > b - a - off:
                # The kernel counted a switch that it did not show to BPF,
                # neither out nor in (as of a task that it hides): nobody can
                # tell, by either side, how long that one took.
                hidden += 1
                by_kind["unknown"] += by_kind["running"] - (b - a - off)
                by_kind["running"] = b - a - off
            total += b - a - by_kind["unknown"]
            unknown += by_kind["unknown"]
            if kind == "running":
                right += by_kind["running"]
            elif kind == "runnable":
                # Nor was it without one while its own clock went on.
                slack = (b - a) // 100
                right += min(by_kind["runnable"], b - a - cpu + slack)
                right += min(by_kind["running"], b - a - off + slack)
            else:
                # Around its sleep it ran, and after the wake-up it may have
                # waited for a CPU: as long as the kernel's own counts say. Its
                # run begins there when it is picked, ours when it is switched
                # to; where the host takes the virtual CPU in between, the one
                # calls running what is waiting by the other. Its wait begins
                # once the wake has reached the other CPU (30-50 us later on a
                # VM), ours with the wake itself.
                if waited < 0:
                    waited = (b - a) // 10
                right += by_kind[kind]
                right += min(by_kind["running"] + by_kind["runnable"],
                             cpu + waited + (b - a) // 100)
        expect(unknown <= MAX_HIDDEN * (end - begin), f"{thread['name']}: "
               f"{unknown / 1e9:.3f} s not known, though no loss is reported")
        share = right / total
        texts.append(f"{thread['name']} {100 * share:.2f} %" +
                     (f" ({hidden} switches counted but not shown by the "
                      "kernel)" if hidden else ""))
        expect(share >= 0.99, f"{thread['name']}: only {100 * share:.2f} % of "
               f"{total / 1e9:.2f} s right")
    return ", ".join(texts)


def check_join(rec):
    rec.complain_about_losses()
    tid = rec.truth["tid"]
    name = "cudaStreamSynchronize"
    calls = [c for c in rec.calls_of(tid) if c["name"] == name]
    calls.sort(key=lambda c: c["begin_ns"])
    made = rec.truth["calls"][name]
    expect(len(calls) == made, f"{made} calls made, {len(calls)} stored")
    begins = [c["begin_ns"] for c in calls]

    def call_at(t):
        k = bisect.bisect_right(begins, t) - 1
        inside = k >= 0 and t <= begins[k] + calls[k]["duration_ns"]
        return k if inside else None

    # Where the kernel hides a task from BPF, so is the switch from it to our
    # thread; no sleep can be judged then, but each must be told as a loss.
    nested, unseen, broken, sleeps = set(), set(), 0, 0
    hidden = rec.unseen()
    for out, back, row, row_in in rec.off_cpu(tid):
        if row["prev_syscall"] != CLOCK_NANOSLEEP + 1:
            continue
        k = call_at(out)
        if row_in is None:
            expect(any(a < back and out < b for a, b in hidden),
                   f"the switch-in between {out} and {back} is missing, and "
                   "no loss says so")
            unseen.add(k)
            continue
        sleeps += 1
        if k is not None and call_at(back) == k:
            nested.add(k)
        else:
            broken += 1
    unseen -= nested | {None}
    rec.calls_with_unseen = {begins[k] for k in unseen}
    slept = rec.truth["slept"]
    expect(slept >= made // 2, f"only {slept} of {made} calls slept: nothing "
           "to check on a machine this busy")
    expect(len(unseen) <= MAX_HIDDEN * made, f"{len(unseen)} of {made} calls "
           "hold a switch that the kernel did not show")
    expect(len(nested) >= 0.999 * (slept - len(unseen)),
           f"{slept} calls slept, {len(unseen)} of them unseen, {len(nested)} "
           f"hold their sleep; {broken} sleeps stick out of a call")
    expect(broken <= made * 0.001, f"{broken} of {sleeps} sleeps stick "
           "out of their call")
    last = 0
    for c in calls:
        expect(c["begin_ns"] >= last, "calls of one thread overlap: time went "
               f"backward at {c['begin_ns']}")
        last = c["begin_ns"] + c["duration_ns"]
    return (f"{slept} of {made} calls slept, {len(nested)} hold their sleep, "
            f"{len(unseen)} with a switch that the kernel did not show, "
            f"{broken} sleeps stick out")


def check_splits(rec):
    calls = {(c["begin_ns"], c["tid"], c["func"]): c["duration_ns"]
             for c in rec.rows("calls")}
    rows = rec.rows("splits")
    expect(rows, "no call has a split")
    for s in rows:
        key = (s["begin_ns"], s["tid"], s["func"])
        expect(key in calls, f"split of a call that is not stored: {key}")
        parts = sum(s[x + "_ns"] for x in
                    ("running", "runnable", "sleeping", "io", "unknown"))
        expect(parts == calls[key], f"{s['name']} at {s['begin_ns']}: parts "
               f"sum to {parts}, duration is {calls[key]}")
    tid = rec.truth["tid"]
    mine = {s["begin_ns"]: s for s in rows
            if s["tid"] == tid and s["name"] == "cudaStreamSynchronize"}
    # What the kernel did not show must be told as unknown, never as a sleep.
    unseen = rec.calls_with_unseen
    for begin in unseen:
        expect(begin in mine and mine[begin]["unknown_ns"] > 0,
               f"the call at {begin} holds a switch that the kernel did not "
               f"show, but its split has nothing unknown: {mine.get(begin)}")
    found = sum(s["sleeping_ns"] > 0 for b, s in mine.items()
                if b not in unseen)
    expect(found >= 0.999 * (rec.truth["slept"] - len(unseen)),
           f"{rec.truth['slept']} calls slept, {len(unseen)} of them unseen, "
           f"only {found} have a split that says so")
    return (f"{len(rows)} splits sum to their calls, {len(unseen)} hold "
            "unknown time")


def fingerprint(run, store):
    text = run.ingero("dump", store, "--format", "jsonl", timeout=300)
    report = run.explain()
    return (hashlib.sha256(text.encode()).hexdigest(),
            json.dumps(report, sort_keys=True), text.count("\n"))


def check_again(rec, run):
    before = fingerprint(run, rec.store)
    run.merge()
    after = fingerprint(run, rec.store)
    expect(before[0] == after[0], "the second merge changed the store")
    expect(before[1] == after[1], "the second merge changed the report")
    return f"{before[2]} rows unchanged"


def check_demo(build):
    """The demo prints how long the simulated GPU did not compute: explain's
    lower bound may not lie above that, however busy this machine is."""
    with RecordedRun(build) as run:
        printed = run.record([run.build / "bin" / "starved_loader",
                              "--steps", "30", "--passes", "10"])
        planted = re.search(r"planted: in all .* without work +([0-9.]+) s",
                            printed)
        expect(planted, f"the demo does not say what it planted: {printed}")
        lost = float(planted[1]) + 0.001  # as printed, and two clock readings
        run.merge()
        feeding = run.explain()["feeding"]
        expect(len(feeding) == 1, f"{len(feeding)} programs with GPU work")
        least, most = (feeding[0][f"idle_at_{x}_ns"] / 1e9
                       for x in ("least", "most"))
        expect(0 < least <= lost, f"idle at least {least:.4f} s, planted "
               f"{planted[1]} s")
        return (f"planted {planted[1]} s, explain says {least:.3f} to "
                f"{most:.3f} s")


def check_own(build):
    with RecordedRun(build) as other, RecordedRun(build) as run:
        other.record([run.build / "bin" / "starve_sim", "--preset",
                      "loader-cpu-bound", "--steps", "50"])
        ended, mergers = threading.Event(), []

        def merge_again_and_again():
            while not ended.is_set():
                done = subprocess.Popen(
                    ["taskset", "-c", "0", run.build / "bin" / "ingero",
                     "merge", "--dir", other.traces, "-o",
                     other.dir / f"{len(mergers)}.store"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL)
                mergers.append(done.pid)
                done.wait()

        run.start_kprobe()
        own = {run.kprobe.pid}
        merging = threading.Thread(target=merge_again_and_again)
        merging.start()
        try:
            run.program([run.build / "bin" / "starve_sim", "--host-us", "4000",
                         "--trainer-cpus", "0", "--steps", "150"])
        finally:
            ended.set()
            merging.join()
            run.stop_kprobe()
        own.update(mergers)
        run.merge()
        report = run.explain()
        marked = {json.loads(line)["pid"] for line in run.ingero(
            "query", "--format", "jsonl",
            "SELECT pid FROM processes WHERE is_ingero").splitlines()}
        # An `ingero` of somebody else on this machine is one too.
        expect(own <= marked, f"not marked as ingero's own: {own - marked}")
        named = {c["pid"] for f in report["findings"] for c in f["culprits"]}
        expect(not named & marked,
               f"a finding names ingero's own processes: {named & marked}")
        waited = sum(a["waited_for_ingero_ns"] for a in report["accounts"])
        held = json.loads(run.ingero(
            "query", "--format", "jsonl",
            "SELECT count(*) AS n FROM switches JOIN processes ON "
            "next_pid = pid WHERE is_ingero AND cpu = 0").splitlines()[0])["n"]
        expect(held > 0, "no merge was seen to run on the trainer's CPU")
        expect(waited > 0, "the trainer's waits for them are not told apart")
        return (f"{len(mergers)} merges and the companion are ingero's own; "
                f"the trainer waited {waited / 1e6:.0f} ms for them")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--calls", type=int, default=10000,
                   help="sleeping calls of the join check")
    p.add_argument("--keep", type=pathlib.Path, help="keep recordings here")
    args = p.parse_args()
    skip_all_unless_possible(args.build)
    counts = collections.Counter()

    def check(name, function, *arguments):
        try:
            text = function(*arguments)
        except Skip as e:
            counts["skipped"] += 1
            print(f"SKIP {name}: {e}", flush=True)
        except (Wrong, RunError, KeyError) as e:
            counts["failed"] += 1
            what = f"no field {e}" if isinstance(e, KeyError) else e
            print(f"FAIL {name}: {what}", flush=True)
        else:
            counts["passed"] += 1
            print(f"ok   {name}: {text}", flush=True)

    def recorded(name, arguments, checks, environment=None):
        keep = args.keep / name if args.keep else None
        with RecordedRun(args.build, keep=keep) as run:
            if environment:
                environment = {k: str(run.dir / v)
                               for k, v in environment.items()}
                for folder in environment.values():
                    pathlib.Path(folder).mkdir(exist_ok=True)
            try:
                rec = Recording(run, arguments, environment)
            except Skip as e:
                counts["skipped"] += len(checks)
                print(f"SKIP {name}: {e}", flush=True)
                return
            except (RunError, KeyError) as e:
                counts["failed"] += len(checks)
                print(f"FAIL {name}: {e}", flush=True)
                return
            for what, function in checks:
                if function in (check_calls, check_again):
                    check(what, function, rec, run)
                else:
                    check(what, function, rec)

    recorded("calls", ["--preset", "loader-cpu-bound", "--steps", "100"],
             [("calls", check_calls), ("again", check_again)],
             {"FAKE_CUDA_COUNTS": "counts"})
    def states_settled():
        """The planted stamps are taken from inside and carry what the host of
        a virtual machine takes from it: one recording of three must hold."""
        for attempt in range(3):
            with RecordedRun(args.build) as run:
                rec = Recording(run, ["--mode", "states", "--seconds", "3"])
                try:
                    return check_states(rec)
                except Wrong as e:
                    wrong = e
                    print(f"again states: {e}", flush=True)
        raise wrong

    check("states", states_settled)
    check("demo", check_demo, args.build)
    check("own", check_own, args.build)
    recorded("sleepers", ["--mode", "sleepers", "--calls", str(args.calls)],
             [("join", check_join), ("splits", check_splits)])
    print(f"{counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
