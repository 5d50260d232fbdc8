#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Coverage: what the shim saw is told name by name, and so is what it did not.

  cover_test.py --shim libingero_cuda.so --bin DIR --lib DIR --parts DIR
"""
import argparse
import collections
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import read_stream  # noqa: E402

SHIM = BIN = LIB = PARTS = None
NOW_DEEP = os.RTLD_NOW | os.RTLD_DEEPBIND


class CoverTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-cover-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def run_with(self, command, shim=True, env=None, status=0,
                 file_bytes=None):
        def limit():
            if file_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE,
                                   (file_bytes, file_bytes))
        full = {k: v for k, v in os.environ.items()
                if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        full["INGERO_DIR"] = self.dir
        if shim:
            full["LD_PRELOAD"] = SHIM
        full.update(env or {})
        done = subprocess.run([str(c) for c in command], env=full,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=60, preexec_fn=limit)
        self.assertEqual((done.returncode, done.stderr), (status, ""), command)
        return done.stdout

    def client(self, *args, **kw):
        return self.run_with([f"{BIN}/cover_client", *args], **kw)

    def one(self):
        streams = read_stream.load_folder(self.dir)
        self.assertEqual(len(streams), 1)
        s = streams[0]
        os.unlink(s.path)
        return s

    def facts(self, s, way):
        """Last record of each (detail, text): counts are totals."""
        return {(detail, text): count
                for w, detail, count, text in s.coverage_facts if w == way}

    def names(self, s, way):
        return {name for (detail, text) in self.facts(s, "ENTRIES")
                if read_stream.WAYS[detail] == way for name in text.split()}

    def test_functions_are_named_by_the_way_they_were_resolved(self):
        self.run_with([f"{BIN}/shim_client", "linked", 10])
        s = self.one()
        self.assertEqual(self.names(s, "LINKED"), {"cudaMalloc"})
        self.assertEqual(self.names(s, "DLSYM"), set())
        self.run_with([f"{BIN}/shim_client", "dlsym", 10])
        s = self.one()
        self.assertEqual(self.names(s, "DLSYM"), {"cudaMalloc"})
        self.assertEqual(self.names(s, "LINKED"), set())

    def test_libraries_are_told_with_links_followed(self):
        folder = os.path.join(self.dir, "lib")
        os.mkdir(folder)
        full = os.path.join(folder, "libcudart.so.13.0.96")
        shutil.copy(f"{LIB}/small_rt13/libcudart.so.13", full)
        os.symlink("libcudart.so.13.0.96", f"{folder}/libcudart.so.13")
        self.run_with([f"{BIN}/shim_client", "linked", 10],
                      env={"LD_LIBRARY_PATH": folder})
        self.assertEqual(list(self.facts(self.one(), "MAPPED")),
                         [(0, os.path.realpath(full))])

    def test_a_function_newer_than_the_table_works_and_is_named(self):
        command = ("driver", f"{PARTS}/driver/libcuda.so.1")
        bare = self.client(*command, shim=False)
        self.assertEqual(bare, "0 77 1 0\n")
        self.assertEqual(self.client(*command), bare)
        s = self.one()
        self.assertEqual([c.name for c in s.calls if c.name == "cuInit"],
                         ["cuInit"])
        # Once by cuGetProcAddress, once by dlsym.
        self.assertEqual(self.facts(s, "ESCAPED"), {(0, "cuBrandNew"): 2})
        self.assertEqual(self.names(s, "PROC_ADDRESS"), {"cuInit"})
        self.assertEqual(self.names(s, "DLSYM"), {"cuGetProcAddress_v2"})
        # Who asked is where a static runtime lies.
        asked, = self.facts(s, "ASKED_BY")
        self.assertEqual(asked[1], os.path.realpath(f"{BIN}/cover_client"))

    def test_a_forked_child_tells_its_own(self):
        code = ("import ctypes, os; r = ctypes.CDLL('libcudart.so.12');"
                "p = ctypes.c_void_p(); f = r.cudaMalloc;"
                "f(ctypes.byref(p), 1);"
                "os.fork() or (f(ctypes.byref(p), 2), os._exit(0));"
                "os.wait()")
        # _exit skips the shim's exit handler: enough calls to see a clock
        # sample, at which coverage is written.
        code = code.replace("f(ctypes.byref(p), 2)",
                            "[f(ctypes.byref(p), 2) for i in range(20000)]")
        self.run_with([sys.executable, "-c", code],
                      env={"LD_LIBRARY_PATH": f"{LIB}/small_rt12"})
        streams = read_stream.load_folder(self.dir)
        self.assertEqual(len(streams), 2)
        for s in streams:
            self.assertEqual(self.names(s, "DLSYM"), {"cudaMalloc"})
            self.assertEqual(len(self.facts(s, "MAPPED")), 1)

    def test_a_deep_bound_plug_in_is_seen_on_request(self):
        plug_in = f"{LIB}/plug_in_13.so"
        for flags in (os.RTLD_NOW, NOW_DEEP, os.RTLD_LAZY | os.RTLD_DEEPBIND):
            bare = self.client("plug-in", flags, plug_in, shim=False)
            self.assertEqual(bare, "13 13\n")
            self.assertEqual(self.client("plug-in", flags, plug_in,
                                         env={"INGERO_CLEAR_DEEPBIND": "1"}),
                             bare)
            s = self.one()
            self.assertEqual([c.name for c in s.calls],
                             ["cudaGetDeviceCount"] * 2)
            deep = flags & os.RTLD_DEEPBIND
            self.assertEqual(self.facts(s, "DEEPBIND"),
                             {(0, plug_in): 1} if deep else {})

    def test_the_bit_is_kept_otherwise(self):
        plug_in = f"{LIB}/plug_in_13.so"
        for env in ({}, {"INGERO_CLEAR_DEEPBIND": "1", "INGERO_DISABLE": "1"}):
            self.assertEqual(self.client("plug-in", NOW_DEEP, plug_in,
                                         env=env), "13 13\n")
            # Bound to its own runtime: not seen.
            self.assertEqual(os.listdir(self.dir), [])
        # Once anything else is seen, it is said that this was not.
        code = ("import ctypes, sys; r = ctypes.CDLL('libcudart.so.12');"
                f"p = ctypes.CDLL('{plug_in}', mode={NOW_DEEP});"
                "n = ctypes.c_int(); r.cudaGetDeviceCount(ctypes.byref(n));"
                "print(n.value, p.plug_in_which())")
        out = self.run_with([sys.executable, "-c", code],
                            env={"LD_LIBRARY_PATH": f"{LIB}/small_rt12"})
        self.assertEqual(out, "12 13\n")
        s = self.one()
        self.assertEqual(len(s.calls), 1)
        self.assertEqual(self.facts(s, "DEEPBIND"), {(1, plug_in): 1})

    def test_dlopen_is_seen_to_come_from_its_true_caller(self):
        for flags in (os.RTLD_NOW, NOW_DEEP):
            command = ("runpath", flags, f"{PARTS}/libcover_opener.so",
                       "libcover_leaf.so")
            bare = self.client(*command, shim=False)
            # The program itself finds no leaf; the library does.
            self.assertEqual(bare, "0 42\n")
            self.assertEqual(self.client(*command), bare)

    # ---- NVTX ----------------------------------------------------------

    def nvtx(self, client):
        out = self.run_with([client], env={"NVTX_INJECTION64_PATH": SHIM})
        self.assertEqual(out, "1 1 1 1\n")
        parent, child = sorted(read_stream.load_folder(self.dir),
                               key=lambda s: -len(s.calls))
        # Of 100 pushed within one, 63 were kept.
        self.assertEqual((parent.lost, child.lost), ({7: 37}, {}))
        for s in (parent, child):
            self.assertEqual(s.torn, 0)
            os.unlink(s.path)
        return parent, child

    def named(self, s):
        return collections.Counter(
            (kind, s.nvtx_names[domain], s.nvtx_names[name])
            for kind, domain, name, _, _, _ in s.nvtx)

    def test_nvtx_ranges(self):
        clients = [c for c in ("nvtx_client", "nvtx_client_stand_in")
                   if os.path.exists(f"{BIN}/{c}")]
        self.assertIn("nvtx_client_stand_in", clients)
        for client in clients:
            parent, child = self.nvtx(f"{BIN}/{client}")
            nested, process, mark = 1, 2, 3
            self.assertEqual(self.named(parent), {
                (nested, "", "whole run"): 1,
                (nested, "", "step"): 10,
                (nested, "", "l\u00f6ad \u20ac \U0001f600"): 10,
                (nested, "my library", "solve"): 1,
                (nested, "", "inside"): 1,
                (process, "", "over threads"): 1,
                (mark, "", "now"): 1,
                (nested, "", "deep"): 63,
            })
            self.assertEqual(self.named(child), {
                (nested, "", "child"): 1,
                (nested, "my library", "solve"): 1,
            })
            spans = {parent.nvtx_names[n]: (start, start + duration, tid)
                     for _, _, n, start, duration, tid in parent.nvtx}
            calls = [c.start for c in parent.calls]
            whole = spans["whole run"]
            self.assertLess(whole[0], min(calls))
            self.assertGreater(whole[1], max(calls))
            # Each step holds its call, and its inner range.
            inner = [r for r in parent.nvtx
                     if parent.nvtx_names[r[2]].startswith("l")]
            steps = [r for r in parent.nvtx
                     if parent.nvtx_names[r[2]] == "step"]
            for (_, _, _, b, d, _), (_, _, _, ob, od, _) in zip(inner, steps):
                self.assertTrue(ob <= b and b + d <= ob + od)
                self.assertEqual(len([c for c in calls if b <= c <= b + d]), 1)
            self.assertNotEqual(spans["over threads"][2], whole[2])
            self.assertEqual(spans["now"][0], spans["now"][1])

    def marked(self, *args, **kw):
        env = {"NVTX_INJECTION64_PATH": SHIM}
        self.run_with([f"{BIN}/nvtx_client_stand_in", *args], env=env, **kw)
        return sorted(read_stream.load_folder(self.dir),
                      key=lambda s: -len(s.calls))

    def begun(self, s):
        return collections.Counter((kind, s.nvtx_names[name])
                                   for kind, _, name, _, _ in s.nvtx_begins)

    def test_nvtx_ranges_that_are_open_or_early(self):
        nested, process, mark = 1, 2, 3
        for how, status in (("killed", -signal.SIGKILL), ("left", 0),
                            ("ended", 0)):
            parent, child = self.marked(how, status=status)
            self.assertEqual(self.named(parent), {
                (nested, "", "early"): 1,
                (mark, "", "early mark"): 1,
                (nested, "", "early thread"): 1,
                (process, "", "ended late"): 1,
                (nested, "", "step"): 3,
            }, how)
            self.assertEqual(self.begun(parent), {
                (nested, "whole run"): 1,
                (process, "started early"): 1,
                (process, "ended late"): 1,
                (nested, "epoch"): 1,
                (nested, "step"): 3,
                (nested, "solve"): 1,
                (process, "started late"): 1,
                (nested, "thread's"): 1,
            }, how)
            # Nothing of the parent's.
            self.assertEqual(self.named(child), {})
            self.assertEqual(self.begun(child), {
                (nested, "child's early"): 1, (nested, "child's"): 1})
            self.assertEqual((parent.lost, child.lost), ({}, {}))
            by = {parent.nvtx_names[name]: (tid, start)
                  for _, _, name, start, _, tid in parent.nvtx}
            main, first_call = parent.pid, min(c.start for c in parent.calls)
            self.assertEqual(by["early"][0], main)
            self.assertNotIn(by["early thread"][0], (0, main))
            self.assertNotIn(by["ended late"][0], (0, main))
            began = {parent.nvtx_names[name]: (tid, start)
                     for _, _, name, start, tid in parent.nvtx_begins}
            self.assertEqual(began["whole run"][0], main)
            self.assertEqual(began["ended late"], (main, by["ended late"][1]))
            self.assertNotIn(began["thread's"][0], (0, main))
            for name in ("early", "early mark", "early thread"):
                self.assertLess(by[name][1], first_call)
            self.assertLess(began["whole run"][1], first_call)
            # An end has the start of its begin.
            begins = {start for _, _, _, start, _ in parent.nvtx_begins}
            for _, _, name, start, _, _ in parent.nvtx:
                self.assertEqual(start in begins, parent.nvtx_names[name] in
                                 ("step", "ended late"))
            for s in (parent, child):
                os.unlink(s.path)

    def test_nvtx_ranges_before_cuda_are_bounded_and_counted(self):
        for ended, opened, lost in ((768, 256, 0), (769, 256, 1),
                                    (2000, 300, 1232 + 44)):
            s, = self.marked("early", ended, opened)
            self.assertEqual(self.named(s), {
                (1, "", "ended"): min(ended, 768),
                (2, "", "open"): min(opened, 256)})
            self.assertEqual(self.begun(s), {(2, "open"): min(opened, 256)})
            self.assertEqual(s.lost, {7: lost} if lost else {})
            os.unlink(s.path)

    def test_nvtx_ranges_while_the_stream_begins(self):
        for _ in range(10):
            s, = self.marked("race", 4, 150)
            self.assertEqual(self.named(s), {(1, "", "raced"): 600})
            self.assertEqual(s.lost, {})
            tids = collections.Counter(r[5] for r in s.nvtx)
            self.assertEqual(sorted(tids.values()), [150] * 4)
            starts = [(r[3], r[5]) for r in s.nvtx]
            self.assertEqual(len(set(starts)), 600)
            self.assertLessEqual({b[3:] for b in s.nvtx_begins}, set(starts))
            os.unlink(s.path)

    def test_nvtx_begin_of_an_open_range_outlives_a_full_disk(self):
        s, = self.marked("full", 5000, status=-signal.SIGKILL,
                         file_bytes=3 << 16)
        self.assertIn(1, s.lost)
        self.assertEqual(self.begun(s)[1, "whole run"], 1)
        steps = self.named(s)[1, "", "step"]
        self.assertLess(steps, 5000)
        # One whose begin was written and whose end was not.
        ended = {r[3] for r in s.nvtx}
        half = [b for b in s.nvtx_begins if b[3] not in ended]
        self.assertIn(len(half), (1, 2, 3))
        self.assertEqual(steps + len(half) - 1 + s.lost[7], 5000)

    def test_nvtx_without_cuda_or_recording_leaves_nothing(self):
        code = ("import ctypes, os; s = ctypes.CDLL(os.environ['LD_PRELOAD']);"
                "print(s.InitializeInjectionNvtx2(None))")
        self.assertEqual(self.run_with([sys.executable, "-c", code]), "0\n")
        out = self.run_with([f"{BIN}/nvtx_client_stand_in"],
                            env={"NVTX_INJECTION64_PATH": SHIM,
                                 "INGERO_DISABLE": "1"})
        self.assertEqual(out, "1 1 0 0\n")
        self.assertEqual(self.marked("no-cuda"), [])
        self.assertEqual(os.listdir(self.dir), [])


def main():
    global SHIM, BIN, LIB, PARTS
    parser = argparse.ArgumentParser()
    for option in ("shim", "bin", "lib", "parts"):
        parser.add_argument("--" + option, required=True)
    options, rest = parser.parse_known_args()
    SHIM, BIN, LIB, PARTS = (options.shim, options.bin, options.lib,
                             options.parts)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
