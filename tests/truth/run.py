#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Truth suite: plants one cause of GPU starvation at a time, records it from
both sides, and compares what `ingero explain` says with what the simulator
measured itself. Prints a confusion matrix; the last line is
"N passed, N failed, N skipped".

  tests/truth/run.py --build BUILD            every case, 3 seeds
  tests/truth/run.py --build BUILD --short    one seed of the main cases
  tests/truth/run.py --build BUILD --cases healthy --keep /tmp/x   look at one
"""

import argparse
import json
import pathlib
import shlex
import shutil
import sys

from recorded_run import RecordedRun, RunError, Skip, skip_all_unless_possible

MAIN = ["loader-cpu-bound", "loader-slow-worker", "loader-oversubscribed",
        "cpu-oversubscribed", "cpu-other-process", "in-process-loading", "host-bound",
        "host-bound-engine",
        "memory-faults", "pageable-copy", "idle-by-choice", "healthy",
        "gpu-bound", "gpu-bound-queue", "lock-held", "interpreter-lock",
        "upstream-wait", "stopped",
        "cgroup-quota", "quota-contention", "quota-loader",
        "quota-not-reached", "sync-storm", "alloc-churn", "launch-bound",
        "cold-start", "lazy-load-stall", "workers-replaced", "worker-died",
        "host-callback", "two-causes", "mixed-phases"]
# Not with --short: they need a disk, or many processes, for themselves.
LONG = ["storage-bound", "fork-storm"]

# What the first finding advises, as flags: the time that it promises must be
# what is then gained. Where workers would need CPUs that are not there, the
# batch is made cheaper instead.
FIXES = {
    "loader-cpu-bound": "--load_cpu_us 500",
    "loader-slow-worker": "--slow_worker_us 0",
    "stopped": "--stop-us 0",
    "loader-oversubscribed": "--load_cpu_us 300",
    "cpu-oversubscribed": "--load_cpu_us 200",
    "cpu-other-process": "--spinners 0",
    "in-process-loading": "--load_cpu_us 0",
    "host-bound": "--host_us 0",
    "host-bound-engine": "--engine-us 0",
    "memory-faults": "--touch_pages 0",
    "pageable-copy": "--copy pinned",
    "idle-by-choice": "--sleep_us 0",
    "lock-held": "--lock_hold_us 0",
    "interpreter-lock": "--gil-turns 0",
    "upstream-wait": "--load_sleep_us 500",
    "fork-storm": "--load_forks 0 --load_cpu_us 0",
    "storage-bound": "--load_read_kib 64",
    "cgroup-quota": "--quota_ms 0",
    "quota-contention": "--quota_ms 0",
    "quota-loader": "--quota_ms 0",
    "quota-not-reached": "--spinners 0",
    "sync-storm": "--queries 0",
    "alloc-churn": "--allocations 0",
    "lazy-load-stall": "--module-us 0",
    "workers-replaced": "--epoch-steps 0",
    "two-causes": "--host-us 0",
    "mixed-phases": "--host-us 0",
}
GAIN_TOLERANCE = 0.20
# Without the quota the trainer also gets its CPU from the spinner sooner: more
# is gained than either promises.
INTERACTING = {"quota-contention"}

# A lost time may differ by this much, whichever is more.
TOLERANCE = 0.10
# memory-faults is an estimate and says so: pages times what one costs, from the
# kernel's tick, spread over all that the thread does while it runs.
# launch-bound is an upper bound and says so: the time of the launches, of which
# the kernels themselves are no loss.
WIDER = {"memory-faults": 0.20, "launch-bound": 0.20}
# Workers that fight for CPUs also compute: what was planted as one wait is, by
# nanosecond, waiting for a CPU or computing, and explain reports both.
PARTS = {
    "loader-oversubscribed": {"loader-oversubscribed", "cpu-oversubscribed",
                              "loader-cpu-bound"},
    "cpu-oversubscribed": {"loader-oversubscribed", "cpu-oversubscribed",
                           "loader-cpu-bound"},
    # Starting a process is the trainer's own host code.
    "fork-storm": {"fork-storm", "in-process-loading", "host-bound",
                   "slow-wakeup"},
}
FLOOR_NS = 30_000_000
# Of what was lost, this much must be the planted cause's, or it is no test.
PLANTED = 0.4
ALARMING = ("high", "medium")
# Above this many busy CPUs of other processes (on average, the collectors
# included) the planted cause is not the only one, and the case is run again.
NOISE = 0.10
ATTEMPTS = 3
# A virtual machine's host takes time that nothing here shows. The short suite
# gates every change, so there a complaint counts when two more recordings make
# one too; the whole suite, which judges explain, takes the first.
SECOND_LOOKS = 2


def close_enough(found, planted, tolerance=TOLERANCE):
    return abs(found - planted) <= max(tolerance * planted, FLOOR_NS)


def judge(truth, report):
    """(what was found, list of complaints)."""
    complaints = []
    pid = truth["pid"]
    findings = [f for f in report["findings"] if f["pid"] in (pid, 0)]
    accepted = [x for x in [truth["cause"], *truth["accepted"].split()] if x]
    alarming = [f for f in findings if f["severity"].lower() in ALARMING]

    feeds = [f for f in report["feeding"]
             if f["process"] and f["process"]["pid"] == pid]
    if not feeds:
        complaints.append(f"no feeding for the trainer, pid {pid}")
    else:
        # Cold start lies before the loop that the simulator measures, but
        # where it loads modules itself.
        cold = (truth["parts"]["cold"] if truth.get("loads") else
                sum(f.get("cold_start_ns", 0) for f in feeds))
        idle = sum(f["idle_at_least_ns"] for f in feeds) - cold
        at_most = sum(f["idle_at_most_ns"] for f in feeds)
        lost = truth["lost_ns"]
        # The bounds hold, whatever can be known: by the GPU's own account.
        real = truth["gpu_idle_ns"]
        if at_most + FLOOR_NS < real:
            complaints.append(f"idle at most {at_most / 1e9:.3f} s, but "
                              f"{real / 1e9:.3f} s were")
        if idle > real + FLOOR_NS:
            complaints.append(f"idle at least {idle / 1e9:.3f} s, but only "
                              f"{real / 1e9:.3f} s were")
        if truth["cause"] and not close_enough(idle, lost):
            complaints.append(f"idle at least {idle / 1e9:.3f} s for "
                              f"{lost / 1e9:.3f} s lost")

    if not truth["cause"]:  # a control
        wrong = [f for f in alarming if f["cause"] not in accepted]
        for f in wrong:
            complaints.append(f"control, yet {f['severity']} {f['cause']}")
        return (wrong[0]["cause"] if wrong else "nothing"), complaints

    also = truth.get("also")
    if also:
        beside = [f for f in alarming if f["cause"] == also["cause"]]
        if not beside:
            complaints.append(f"{also['cause']} is not found beside it")
        elif not close_enough(beside[0]["lost_ns"], also["lost_ns"]):
            complaints.append(f"{also['cause']} lost "
                              f"{beside[0]['lost_ns'] / 1e9:.3f} s, planted "
                              f"{also['lost_ns'] / 1e9:.3f} s")
        # Which of two is larger, chance may decide.
        accepted.append(also["cause"])
    if truth.get("kind") == "fact":
        for f in alarming:
            complaints.append(f"{f['severity']} {f['cause']}, yet nothing was lost")
        if not any(f["cause"] in accepted for f in findings):
            complaints.append("does not say so")
            return findings[0]["cause"] if findings else "nothing", complaints
        return truth["cause"], complaints
    if truth.get("kind") in ("low", "possible"):
        for f in alarming:
            if f["cause"] not in accepted:
                complaints.append(f"{f['severity']} {f['cause']}")
        alarming = [f for f in findings if f["severity"].lower() != "info"]
    if not alarming:
        top = findings[0]["cause"] if findings else "nothing"
        complaints.append(f"no high or medium finding; first is {top}")
        return top, complaints
    top = alarming[0]
    if top["cause"] not in accepted:
        complaints.append(f"first finding is {top['cause']}, lost "
                          f"{top['lost_ns'] / 1e9:.3f} s")
        return top["cause"], complaints
    planted = truth["cause_lost_ns"]
    parts = PARTS.get(truth["cause"], set()) | (
        set(accepted) - {also["cause"]} if also else {top["cause"]})
    which = ("lost_at_most_ns" if truth.get("kind") == "possible"
             else "lost_ns")
    lost = sum(f[which] for f in findings if f["cause"] in parts)
    if not close_enough(lost, planted, WIDER.get(truth["cause"], TOLERANCE)):
        complaints.append(f"{top['cause']} lost {lost / 1e9:.3f} s, "
                          f"planted {planted / 1e9:.3f} s")
    workers = [w["pid"] for w in truth.get("workers", [])]
    wanted = {"worker": workers, "slow-worker": workers[:1],
              "spinner": [s["pid"] for s in truth["spinners"]],
              "engine": [truth.get("engine")], "self": [pid], "": []}[truth["culprit"]]
    named = [c["pid"] for c in top["culprits"]]
    if wanted and (not named or named[0] not in wanted):
        complaints.append(f"names {named or 'nobody'}, not one of {wanted}")
    return top["cause"], complaints


def recompute(run, report):
    """Complaints about findings whose lost time is not what the query that they
    print adds up to; and how many printed one."""
    complaints, asked = [], 0
    for f in report["findings"]:
        for e in f["evidence"]:
            if e["name"] != "lost_ns" or not e["query"].startswith(
                    "ingero query "):
                continue
            asked += 1
            answer = json.loads(run.ingero(
                *shlex.split(e["query"])[1:], "--format", "jsonl"))
            ns = (next(iter(answer.values())) or 0) - sum(
                x["value"] for x in f["evidence"] if x["name"] == "others_ns")
            if abs(ns - f["lost_ns"]) > 1000:
                complaints.append(f"{f['cause']} lost {f['lost_ns']} ns, and "
                                  f"its own query gives {ns}: {e['query']}")
    return complaints, asked


def simulator(run, case):
    """Its path; as a file called python3 where the cause is CPython's."""
    program = run.build / "bin" / "starve_sim"
    if case != "interpreter-lock":
        return program
    return shutil.copy(program, run.dir / "python3")


def run_case(build, case, seed, keep, flags, fixes):
    with RecordedRun(build, keep=keep) as run:
        truth_file = run.dir / "truth.json"
        run.record([simulator(run, case), "--preset", case,
                    "--seed", seed, "--data-dir", run.dir,
                    "--truth", truth_file, *flags])
        truth = json.loads(truth_file.read_text())
        # A scheduler that favours one side (autogroups, for one) can undo it.
        if truth.get("cause_lost_ns", 0) < PLANTED * truth["lost_ns"]:
            if truth["cause"] and truth["kind"] != "fact":
                raise Skip("could not be planted here: "
                           f"{truth['cause_lost_ns'] / 1e9:.3f} of "
                           f"{truth['lost_ns'] / 1e9:.3f} s lost are its")
        run.merge()
        report = run.explain()
        if keep:
            (run.dir / "report.json").write_text(json.dumps(report, indent=1))
        found = judge(truth, report)
        wrong, asked = recompute(run, report)
        found[1].extend(wrong)
        truth["recomputed"] = asked
    # The collectors have ended: the second run has the machine to itself too.
    if fixes and case in FIXES and not found[1]:
        mine = [f for f in report["findings"]
                if f["pid"] in (truth["pid"], 0)]
        # A cheaper batch also ends what its workers take from one another.
        parts = PARTS.get(case, set()) | {
            truth["cause"] if truth.get("also") else mine[0]["cause"]}
        promised = sum(max(r["gain_ns"] for r in f["recommendations"])
                       for f in mine if f["cause"] in parts)
        found[1].extend(judge_fix(build, case, seed, flags, truth, promised))
    return truth, found


def wall_ns(truth):
    return truth["end_ns"] - truth["begin_ns"]


def judge_fix(build, case, seed, flags, truth, promised):
    """Complaints about the time that the advised change gains."""
    with RecordedRun(build) as run:
        truth_file = run.dir / "truth.json"
        run.record([simulator(run, case), "--preset", case,
                    "--seed", seed, "--data-dir", run.dir, "--truth",
                    truth_file, *flags, *FIXES[case].split()])
        after = json.loads(truth_file.read_text())
    gained = wall_ns(truth) - wall_ns(after)
    text = (f"promised {promised / 1e9:.3f} s, {FIXES[case]} gained "
            f"{gained / 1e9:.3f} s")
    if (close_enough(promised, gained, GAIN_TOLERANCE) or
            case in INTERACTING and promised < gained):
        print(f"     {case} seed {seed}: {text}")
        return []
    return [text]


def print_matrix(matrix, cases):
    found = sorted({x for row in matrix.values() for x in row})
    if not found:
        return
    print("\nplanted, and what was found first:")
    width = max(len(c) for c in cases)
    for i, name in enumerate(found):
        print(f"  {chr(ord('A') + i)} = {name}")
    print(" " * width, *(f"{chr(ord('A') + i):>3}" for i in range(len(found))))
    for case in cases:
        if case in matrix:
            row = (matrix[case].get(f, 0) for f in found)
            print(f"{case:{width}}", *(f"{n if n else '.':>3}" for n in row))


def leave_favoured_autogroup(autogroup=pathlib.Path("/proc/self/autogroup")):
    """Spinners are sessions of their own. Those the kernel groups for
    themselves, and whoever asked for the suite may have favoured its group.

    A group that refuses is left as it is: the kernel's root group, where
    nothing is favoured, answers EINVAL; others need a right or a kernel option
    that this machine does not have."""
    try:
        autogroup.write_text("0")
    except OSError:
        pass


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, required=True,
                   help="build tree")
    p.add_argument("--short", action="store_true",
                   help="one seed, main cases only")
    p.add_argument("--cases", help="comma-separated")
    p.add_argument("--seeds", type=int, default=None)
    p.add_argument("--flags", default="",
                   help="of starve_sim, for all cases: --flags='--sync spin'")
    p.add_argument("--fixes", action="store_true",
                   help="also apply what the first finding advises, and compare "
                        "the gain with the promised one")
    p.add_argument("--noisy", action="store_true",
                   help="judge even where other processes use the CPUs")
    p.add_argument("--keep", type=pathlib.Path,
                   help="keep recordings, truth and reports here")
    args = p.parse_args()
    skip_all_unless_possible(args.build)

    leave_favoured_autogroup()

    cases = (args.cases.split(",") if args.cases
             else MAIN + ([] if args.short else LONG))
    unknown = set(cases) - set(MAIN + LONG)
    if unknown:
        p.error(f"no case is called {', '.join(sorted(unknown))}")
    seeds = args.seeds or (1 if args.short or args.cases else 3)
    passed = failed = skipped = recomputed = 0
    matrix = {}
    for case in cases:
        for seed in range(1, seeds + 1):
            keep = args.keep / f"{case}.{seed}" if args.keep else None
            try:
                again = SECOND_LOOKS if args.short else 0
                for _ in range(ATTEMPTS):
                    truth, (found, complaints) = run_case(args.build, case,
                                                          seed, keep,
                                                          args.flags.split(),
                                                          args.fixes)
                    noise = truth["other_cpu_ns"] / (truth["end_ns"]
                                                     - truth["begin_ns"])
                    if not complaints or (noise <= NOISE and again == 0):
                        break
                    if args.noisy:
                        break
                    print(f"again {case} seed {seed}: {noise:.2f} CPUs busy "
                          f"with others; {'; '.join(complaints)}", flush=True)
                    again -= noise <= NOISE
                else:
                    raise Skip(f"other processes kept {noise:.2f} CPUs busy; "
                               "run it on a quiet machine")
            except Skip as e:
                skipped += 1
                print(f"SKIP {case} seed {seed}: {e}", flush=True)
                continue
            except RunError as e:
                failed += 1
                print(f"FAIL {case} seed {seed}: {e}", flush=True)
                continue
            row = matrix.setdefault(case, {})
            row[found] = row.get(found, 0) + 1
            recomputed += truth["recomputed"]
            wall = (truth["end_ns"] - truth["begin_ns"]) / 1e9
            text = (f"{case} seed {seed}: {found}; planted "
                    f"{truth['lost_ns'] / 1e9:.3f} of {wall:.3f} s")
            if complaints:
                failed += 1
                print(f"FAIL {text}: {'; '.join(complaints)}", flush=True)
            else:
                passed += 1
                print(f"ok   {text}", flush=True)
    print_matrix(matrix, cases)
    print(f"lost times recomputed by the query that the finding prints: "
          f"{recomputed}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
