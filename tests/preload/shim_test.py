#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim promises, checked from outside on real processes.

  shim_test.py --shim libingero_cuda.so --bin DIR --lib DIR --fakes DIR
"""
import argparse
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import read_stream  # noqa: E402

SHIM = BIN = LIB = FAKES = None


class ShimTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-shim-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def run_with(self, command, shim=True, env=None, check=0, dir=None):
        full = {k: v for k, v in os.environ.items()
                if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        full["INGERO_DIR"] = dir or self.dir
        if shim:
            full["LD_PRELOAD"] = SHIM
        full.update(env or {})
        done = subprocess.run(command, env=full, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        if check is not None:
            self.assertEqual(done.returncode, check,
                             f"{command}: {done.stdout}{done.stderr}")
        return done

    def client(self, *args, **kw):
        return self.run_with([f"{BIN}/shim_client", *map(str, args)], **kw)

    def streams(self):
        return read_stream.load_folder(self.dir)

    def sizes(self, calls):
        return [c.words["BYTES"] for c in calls if c.name == "cudaMalloc"]

    def one(self):
        streams = self.streams()
        self.assertEqual(len(streams), 1)
        self.check_sound(streams[0])
        return streams[0]

    def one_file(self):
        s, = self.streams()
        return s

    def check_sound(self, s):
        self.assertEqual(s.torn, 0)
        self.assertFalse([c for c in s.calls if c.name.startswith("?")])
        self.assertGreaterEqual(len(s.knots), 2)
        self.assertTrue(s.stream_id and s.pid and s.start_ticks)

    # ---- the library itself --------------------------------------------

    def test_needs_only_libc_of_glibc_2_28(self):
        out = subprocess.run(["readelf", "-dW", SHIM], text=True,
                             stdout=subprocess.PIPE).stdout
        needed = re.findall(r"NEEDED.*\[(.*)\]", out)
        self.assertLessEqual(set(needed), {"libc.so.6", "ld-linux-x86-64.so.2"})
        out = subprocess.run(["objdump", "-T", SHIM], text=True,
                             stdout=subprocess.PIPE).stdout
        versions = {tuple(map(int, v.split(".")))
                    for v in re.findall(r"GLIBC_([0-9.]+)", out)}
        self.assertLessEqual(max(versions), (2, 28))

    def test_exports_under_the_runtimes_nodes(self):
        out = subprocess.run(["readelf", "-W", "--dyn-syms", SHIM], text=True,
                             stdout=subprocess.PIPE).stdout
        names = {line.split()[7] for line in out.splitlines()
                 if len(line.split()) > 7 and " UND " not in line}
        for name in ("cudaMalloc@@libcudart.so.13", "cudaMalloc@libcudart.so.12",
                     "cudaMalloc@libcudart.so.11.0",
                     "__cudaLaunchKernel@@libcudart.so.13",
                     "__cudaLaunchKernel_ptsz@libcudart.so.12",
                     "cuLaunchKernel_ptsz", "cuGetProcAddress_v2", "dlopen", "dlsym",
                     "dlvsym"):
            self.assertIn(name, names)
        names.discard("Name")
        other = {n for n in names if not n.startswith(("cu", "__cuda"))}
        self.assertLessEqual(other, {
            "InitializeInjectionNvtx2",
            "dlopen", "dlsym", "dlvsym", "libcudart.so.13", "libcudart.so.12",
            "libcudart.so.11.0", "libcudart.so.13@@libcudart.so.13",
            "libcudart.so.12@@libcudart.so.12",
            "libcudart.so.11.0@@libcudart.so.11.0"})
        self.assertNotIn("cuGetExportTable", names)

    def test_thread_local_storage_is_small_and_static(self):
        out = subprocess.run(["readelf", "-lWd", SHIM], text=True,
                             stdout=subprocess.PIPE).stdout
        tls = re.search(r"^\s+TLS\s+\S+ \S+ \S+ \S+ (\S+)", out, re.M)
        self.assertLessEqual(int(tls[1], 16), 64)
        self.assertIn("STATIC_TLS", out)

    # ---- forwarding ----------------------------------------------------

    def test_whole_api_is_forwarded_exactly(self):
        for group in (0, 11, 12, 13):
            done = self.run_with([f"{BIN}/whole_api_{group}"],
                                 env={"INGERO_APIS": "all"}, check=None)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:])
            functions, calls, wrong = map(
                int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
            self.assertGreater(functions, 390)
            self.assertEqual(wrong, 0)
            stream = self.one()
            registers = {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd",
                         "__cudaUnregisterFatBinary", "__cudaRegisterVar",
                         "__cudaRegisterManagedVar", "__cudaRegisterTexture",
                         "__cudaRegisterSurface", "__cudaRegisterFunction",
                         "__cudaInitModule"}
            counts = collections.Counter(c.name for c in stream.calls)
            self.assertFalse(registers & set(counts))
            # 6 rounds of every other function; signature variants of one
            # name share it within no group.
            self.assertEqual(set(counts.values()), {6})
            self.assertGreaterEqual(len(counts), functions - len(registers))
            os.unlink(stream.path)

    # ---- ways in -------------------------------------------------------

    def test_each_way_in_sees_every_call(self):
        for way in ("linked", "dlsym", "dlvsym"):
            self.client(way, 100)
            s = self.one()
            self.assertEqual(self.sizes(s.calls), list(range(100)))
            self.assertTrue(all(c.words["ADDRESS"] == 0x1000 + i
                                for i, c in enumerate(s.calls)))
            os.unlink(s.path)

    def test_ctypes(self):
        code = ("import ctypes; r = ctypes.CDLL('libcudart.so.12');"
                "p = ctypes.c_void_p();"
                "[r.cudaMalloc(ctypes.byref(p), i) for i in range(100)]")
        self.run_with([sys.executable, "-c", code],
                      env={"LD_LIBRARY_PATH": f"{LIB}/small_rt12"})
        self.assertEqual(self.sizes(self.one().calls), list(range(100)))

    def test_program_without_cuda_leaves_no_file(self):
        self.run_with(["/bin/true"])
        self.client("none")
        self.assertEqual(os.listdir(self.dir), [])

    def test_cuda_does_not_look_present_where_it_is_not(self):
        self.assertEqual(self.run_with([f"{BIN}/shim_host"]).stdout, "\n")

    def test_get_proc_address_answers_alike(self):
        if not os.path.exists(f"{FAKES}/libcuda.so.1"):
            self.skipTest("tests/fakes is not built")
        code = """
import ctypes
c = ctypes.CDLL('libcuda.so.1')
# name, version, flags: results and statuses as the driver gives them
for name in (b'cuMemAlloc', b'cuStreamSynchronize', b'cuGetProcAddress',
             b'cuLaunchKernel', b'cuNoSuchThing', b'cuInit', b''):
    for version in (2000, 3020, 7000, 11030, 12000, 13000):
        for flags in (0, 1, 2):
            p = ctypes.c_void_p(1)
            s = ctypes.c_int(-1)
            r = c.cuGetProcAddress_v2(name, ctypes.byref(p), version,
                                      ctypes.c_uint64(flags), ctypes.byref(s))
            print(name, version, flags, r, s.value, bool(p.value))
p = ctypes.c_void_p()
c.cuGetProcAddress_v2(b'cuGetProcAddress', ctypes.byref(p), 12000,
                      ctypes.c_uint64(0), None)
again = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p,
                         ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(p.value)
q = ctypes.c_void_p()
print(again(b'cuInit', ctypes.addressof(q), 2000, 0, None))
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint)(q.value)(0))
"""
        env = {"LD_LIBRARY_PATH": FAKES}
        bare = self.run_with([sys.executable, "-c", code], shim=False, env=env)
        with_shim = self.run_with([sys.executable, "-c", code], env=env)
        self.assertEqual(bare.stdout, with_shim.stdout)
        self.assertIn("cuInit", [c.name for c in self.one().calls])

    def test_static_runtime_of_nvcc_enters_through_the_driver(self):
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.access(nvcc, os.X_OK):
            self.skipTest("nvcc is not installed")
        if not os.path.exists(f"{FAKES}/libcuda.so.1"):
            self.skipTest("tests/fakes is not built")
        source = os.path.join(self.dir, "static.cu")
        with open(source, "w") as f:
            f.write("#include <cstdio>\n"
                    "__global__ void k(int* p) { *p = 1; }\n"
                    "int main() { int* p = nullptr;\n"
                    "  printf(\"%d \", (int)cudaMalloc(&p, 64));\n"
                    "  k<<<1, 1>>>(p);\n"
                    "  printf(\"%d\\n\", (int)cudaGetLastError()); }\n")
        program = os.path.join(self.dir, "static")
        subprocess.run([nvcc, "-o", program, source], check=True)
        env = {"LD_LIBRARY_PATH": FAKES}
        # The real runtime wants the driver's hidden tables: a clean failure.
        bare = self.run_with([program], shim=False, env=env).stdout
        self.assertNotEqual(bare.split()[0], "0")
        self.assertEqual(self.run_with([program], env=env).stdout, bare)
        s = self.one()
        ways = {way: count for way, count, _ in s.coverage}
        self.assertEqual(ways["DLSYM"], 1)
        self.assertGreater(ways["PROC_ADDRESS"], 300)
        self.assertIn("cuInit", [c.name for c in s.calls])
        self.assertTrue(all(c.layer == 2 for c in s.calls))

    # ---- whose real function -------------------------------------------

    def same_routing(self, program, *plug_ins, calls):
        command = [f"{BIN}/{program}",
                   *(p if p == "-g" or os.path.isabs(p) else f"{LIB}/{p}.so"
                     for p in plug_ins)]
        bare = self.run_with(command, shim=False).stdout
        self.assertEqual(self.run_with(command).stdout, bare)
        s = self.one()
        self.assertEqual(len(s.calls), calls)
        os.unlink(s.path)
        return bare.split()

    def test_two_runtimes_in_one_process(self):
        self.assertEqual(
            self.same_routing("shim_host", "plug_in_12", "plug_in_13", calls=4),
            ["12", "13"] * 2)
        self.assertEqual(
            self.same_routing("shim_host", "plug_in_13", "plug_in_12", calls=4),
            ["13", "12"] * 2)

    def test_local_plug_in_with_a_copy_of_its_own(self):
        self.assertEqual(
            self.same_routing("shim_host", "plug_in_13", "plug_in_13_copy",
                              calls=4), ["13", "131"] * 2)
        self.assertEqual(
            self.same_routing("shim_host", "plug_in_13_copy", "plug_in_13",
                              "plug_in_12", calls=6), ["131", "13", "12"] * 2)

    def test_more_modules_than_a_wrapper_remembers(self):
        modules = []
        for n, kind in enumerate(("13", "13_copy", "12", "13_copy", "13", "12",
                                  "13")):
            modules.append(os.path.join(self.dir, f"module{n}.so"))
            shutil.copy(f"{LIB}/plug_in_{kind}.so", modules[-1])
        said = ["13", "131", "12", "131", "13", "12", "13"]
        for first in range(len(modules)):
            turn = slice(first, None), slice(None, first)
            self.assertEqual(
                self.same_routing("shim_host", *modules[turn[0]],
                                  *modules[turn[1]], calls=14),
                (said[turn[0]] + said[turn[1]]) * 2)

    def test_global_copy_goes_before_the_plug_ins_own(self):
        self.same_routing("shim_host_13", "plug_in_13_copy", "plug_in_12",
                          calls=6)
        self.same_routing("shim_host", "-g", "plug_in_13", "plug_in_13_copy",
                          calls=4)

    # ---- processes and threads -----------------------------------------

    def test_fork_in_three_ways(self):
        for way in ("fork", "_Fork", "clone"):
            child = int(self.client(way).stdout)
            by_pid = {s.pid: s for s in self.streams()}
            self.assertEqual(len(by_pid), 2)
            mine = by_pid.pop(child)
            parent, = by_pid.values()
            self.check_sound(mine)
            self.check_sound(parent)
            self.assertEqual(self.sizes(parent.calls), list(range(1000)))
            self.assertEqual(self.sizes(mine.calls), list(range(5000, 6000)))
            self.assertEqual(mine.ppid, parent.pid)
            for s in (mine, parent):
                self.assertEqual(s.lost, {})
                os.unlink(s.path)

    def test_fork_inside_a_call(self):
        self.client("fork_inside")
        by_size = sorted(self.streams(), key=lambda s: len(s.calls))
        child, parent = by_size
        self.assertEqual(self.sizes(parent.calls), list(range(20)))
        self.assertEqual(self.sizes(child.calls), list(range(5000, 5010)))
        self.assertEqual([c.name for c in parent.calls].count(
            "cudaLaunchHostFunc"), 1)
        self.assertTrue(all(c.depth == 0 for c in child.calls))
        self.check_sound(child)

    def test_fork_among_busy_threads_never_hangs(self):
        self.client("fork_threads", 200)
        streams = self.streams()
        self.assertEqual(len(streams), 201)
        small = [s for s in streams if len(s.calls) == 5]
        self.assertEqual(len(small), 200)

    def test_exec_starts_a_stream_of_its_own(self):
        self.client("exec")
        sizes = sorted(self.sizes(s.calls) for s in self.streams())
        self.assertEqual(sizes, [list(range(10))] * 2)

    def test_every_way_to_die_keeps_the_calls(self):
        for how in ("exit", "_exit", "kill", "abort", "segv"):
            self.client("die", 5000, how, check=None)
            s = self.one()
            self.assertEqual(sorted(self.sizes(s.calls)), list(range(10000)))
            self.assertEqual(s.exited, how == "exit")
            os.unlink(s.path)

    def test_ten_thousand_short_threads(self):
        self.client("threads", 10000)
        s = self.one()
        self.assertEqual(sorted(self.sizes(s.calls)), list(range(30000)))
        self.assertEqual(len({c.tid for c in s.calls}), 10000)
        self.assertEqual(s.lost, {})
        self.assertLess(s.blocks["LIVE"], 64)

    def test_two_thousand_threads_at_once(self):
        self.client("together", 2000)
        s = self.one()
        self.assertEqual(sorted(self.sizes(s.calls)), list(range(4000)))
        self.assertEqual(s.lost, {})

    def test_calls_from_late_destructors(self):
        self.client("late")
        self.assertEqual(sorted(self.sizes(self.one().calls)),
                         [900, 901, 902, 903, 910, 911])

    def test_calls_from_a_signal_handler(self):
        handled = int(self.client("signal", 200000).stdout)
        s = self.one()
        self.assertGreater(handled, 100)
        # Recorded or counted: none overwritten between its stores.
        self.assertEqual(len(self.sizes(s.calls)) + sum(s.lost.values()),
                         200000 + handled)

    def test_full_blocks_are_written_out_in_order(self):
        self.client("linked", 20000)
        s = self.one()
        self.assertEqual(self.sizes(s.calls), list(range(20000)))
        self.assertGreater(s.blocks["DATA"], 10)
        self.assertEqual(len([c for c in s.self_costs if c[0]]),
                         s.blocks["DATA"])
        starts = [c.start for c in s.calls]
        self.assertEqual(starts, sorted(starts))

    def test_errno_is_unchanged(self):
        self.client("errno", 20000)

    def test_longjmp_out_of_a_call(self):
        self.run_with([f"{BIN}/interposed_client", "jump"])
        s = self.one()
        self.assertEqual([(c.name, c.depth) for c in s.calls],
                         [("cudaMalloc", 0)] * 3 +
                         [("cudaDeviceSynchronize", 1),
                          ("cudaLaunchHostFunc", 0)])
        self.assertEqual(s.inflight, [])

    def test_forked_child_has_its_error_recorded(self):
        if not os.path.exists(f"{FAKES}/libcudart.so.13"):
            self.skipTest("tests/fakes is not built")
        code = """
import ctypes, os
r = ctypes.CDLL('libcudart.so.13')
p = ctypes.c_void_p()
print(r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(64)), flush=True)
child = os.fork()
if child == 0:
    result = r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(65))
    os._exit(result)
print(child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        done = self.run_with([sys.executable, "-c", code],
                             env={"LD_LIBRARY_PATH": FAKES})
        ok, child, error = map(int, done.stdout.split())
        self.assertEqual((ok, error), (0, 3))
        by_pid = {s.pid: s for s in self.streams()}
        self.assertEqual(len(by_pid), 2)
        mine = [(c.name, c.result) for c in by_pid.pop(child).calls
                if c.name == "cudaMalloc"]
        self.assertEqual(mine, [("cudaMalloc", 3)])
        parent, = by_pid.values()
        self.assertEqual([c.result for c in parent.calls
                          if c.name == "cudaMalloc"], [0])

    # ---- other interposers ---------------------------------------------

    def test_other_interposers_are_called_once_per_call(self):
        other = f"{LIB}/interposer.so"
        client = f"{BIN}/interposed_client"
        bare = self.run_with([client], shim=False, env={"LD_PRELOAD": other})
        self.assertEqual(bare.stdout, "1000 1010\n")
        for order in ([other, SHIM], [SHIM, other]):
            done = self.run_with([client],
                                 env={"LD_PRELOAD": ":".join(order)})
            self.assertEqual(done.stdout, bare.stdout, order)
            s = self.one()
            self.assertEqual(collections.Counter(c.name for c in s.calls),
                             {"cudaMalloc": 1010, "cudaFree": 2})
            self.assertTrue(all(c.depth == 0 for c in s.calls))
            os.unlink(s.path)

    def test_allocator_that_makes_cuda_calls(self):
        other = f"{LIB}/malloc_interposer.so"
        for order in ([other, SHIM], [SHIM, other]):
            done = subprocess.run(
                [f"{BIN}/interposed_client"], stdout=subprocess.PIPE, timeout=5,
                env={"LD_PRELOAD": ":".join(order), "INGERO_DIR": self.dir})
            self.assertEqual(done.returncode, 0)
            s = self.one()
            made = int(done.stdout)
            names = collections.Counter(c.name for c in s.calls)
            self.assertEqual(names["cudaMalloc"], 10)
            # printf may allocate after the count was taken
            self.assertGreaterEqual(
                names["cudaDeviceSynchronize"] + sum(s.lost.values()), made - 8)
            self.assertGreater(names["cudaDeviceSynchronize"], 0)
            os.unlink(s.path)

    # ---- choices -------------------------------------------------------

    def test_clock_without_the_tsc(self):
        self.client("linked", 1000, env={"INGERO_CLOCK": "monotonic"})
        s = self.one()
        self.assertEqual(s.clock, 2)
        for _, ticks, ns in s.knots:
            self.assertEqual(ticks, ns)
        self.assertTrue(all(s.mono <= c.start <= s.mono + 120 * 10**9
                            for c in s.calls))
        ingero = os.path.join(os.path.dirname(SHIM), "..", "bin", "ingero")
        if os.path.exists(ingero):
            store = os.path.join(self.dir, "store")
            self.run_with([ingero, "merge", "--dir", self.dir, "-o", store],
                          shim=False)
            dump = self.run_with([ingero, "dump", store], shim=False).stdout
            self.assertEqual(len(re.findall("cudaMalloc", dump)) // 1000, 1)
        done = self.client("linked", 1, env={"INGERO_CLOCK": "sundial"})
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("INGERO_CLOCK", done.stderr)
        # Which of the words it does not know, however long.
        for words, said in (("launch,snyc,alloc,cpoy", "'snyc'"),
                            ("-lunch", "'lunch'"),
                            ("a\033[2Jb", "'a?[2Jb'"),
                            ("x" * 5000, "'" + "x" * 30)):
            done = self.client("linked", 1, env={"INGERO_APIS": words})
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("INGERO_APIS: knows no class " + said, done.stderr)
            self.assertIn("; see docs/environment.md", done.stderr)

    def test_getters_are_left_out_and_counted(self):
        self.client("getter", 1000)
        s = self.one()
        self.assertEqual(len(s.calls), 1)
        self.assertEqual(s.calls_skipped, 1000)
        os.unlink(s.path)
        self.client("getter", 1000, env={"INGERO_APIS": "all"})
        self.assertEqual(len(self.one().calls), 1001)

    def test_disabled_shim_only_passes_on(self):
        self.client("linked", 100, env={"INGERO_DISABLE": "1"})
        self.assertEqual(os.listdir(self.dir), [])

    def test_kernel_names_and_first_use(self):
        self.client("kernels", 3)
        s = self.one()
        self.assertEqual(sorted(n for _, n in s.kernel_records),
                         ["_Z3addPf", "_Z3mulPf"])
        first = [c.words["KERNEL"] for c in s.calls if c.flags & 1]
        self.assertEqual(len(first), 3)
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(len(s.calls), 9)
        for c in s.calls:
            self.assertEqual(c.words["STREAM"], 0x77)
            self.assertEqual(c.words["BLOCKS"], 24)

    # ---- trouble -------------------------------------------------------

    def test_folder_that_cannot_be_used(self):
        done = self.client("linked", 10, dir="/proc/nowhere")
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("INGERO_DIR", done.stderr)

    def test_link_as_folder_is_refused(self):
        link = os.path.join(self.dir, "link")
        os.symlink(self.dir, link)
        done = self.client("linked", 10, dir=link)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(os.listdir(self.dir), ["link"])

    def test_full_disk_is_a_counted_loss(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small tmpfs")
        small = os.path.join(self.dir, "small")
        os.mkdir(small)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320k",
                                  "tmpfs", small], stderr=subprocess.PIPE)
        if mounted.returncode:
            self.skipTest(f"cannot mount: {mounted.stderr.decode().strip()}")
        try:
            self.client("linked", 50000, dir=small)
            s, = read_stream.load_folder(small)
            self.assertEqual(s.torn, 0)
            self.assertEqual(len(self.sizes(s.calls)) + s.lost.get(1, 0), 50000)
            self.assertGreater(s.lost.get(1, 0), 0)
            self.assertEqual(sum(x[1] for x in s.losses if x[0] == 1),
                             s.lost[1])
            # More threads than there is room for: counted, never a SIGBUS.
            os.unlink(s.path)
            self.client("together", 20, dir=small)
            s, = read_stream.load_folder(small)
            self.assertEqual(len(self.sizes(s.calls)) + s.lost.get(2, 0), 40)
        finally:
            subprocess.run(["umount", small])

    def test_file_size_limit_is_a_counted_loss(self):
        for kib in (1, 100, 256):
            done = self.run_with(["sh", "-c", f"ulimit -f {2 * kib}; exec "
                                  f"{BIN}/shim_client linked 20000"])
            self.assertEqual(done.returncode, 0)
            if kib < 64:
                self.assertEqual(self.streams(), [])
                continue
            s = self.one_file()
            self.assertEqual(s.torn, 0)
            self.assertEqual(len(self.sizes(s.calls)) + sum(s.lost.values()),
                             20000)
            self.assertGreater(sum(s.lost.values()), 0)
            os.unlink(s.path)

    def test_removed_file_is_not_written_elsewhere(self):
        code = ("import ctypes, os, glob; r = ctypes.CDLL('libcudart.so.12');"
                "p = ctypes.c_void_p(); r.cudaMalloc(ctypes.byref(p), 1);"
                "f = glob.glob(os.environ['INGERO_DIR'] + '/*')[0];"
                "os.unlink(f); open(f, 'w').write('mine');"
                "[r.cudaMalloc(ctypes.byref(p), 1) for i in range(5000)];"
                "assert open(f).read() == 'mine'")
        self.run_with([sys.executable, "-c", code],
                      env={"LD_LIBRARY_PATH": f"{LIB}/small_rt12"})


def main():
    global SHIM, BIN, LIB, FAKES
    parser = argparse.ArgumentParser()
    for option in ("shim", "bin", "lib", "fakes"):
        parser.add_argument("--" + option, required=True)
    options, rest = parser.parse_known_args()
    SHIM, BIN, LIB, FAKES = (options.shim, options.bin, options.lib,
                             options.fakes)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
