#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program could notice of the shim, and what trouble may cost.

  harm_test.py --shim libingero_cuda.so --bin DIR --lib DIR --fakes DIR

The cases of the field that shim_test.py does not hold: each runs a real
process on stand-ins of CUDA, mostly with and without the shim, and compares.
"""
import collections
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import read_stream
import shim_test

# Those of the field, then all others; True: exit handlers run.
ENDINGS = {"_exit": False, "quick_exit": False, "kill": False, "abort": False,
           "segv": False, "exec": False}
MORE_ENDINGS = {"return": True, "exit": True, "_Exit": False,
                "exit_group": False, "term": False, "int": False,
                "hup": False, "pipe": False, "pthread_exit": True,
                "thread:exit": True, "thread:_exit": False,
                "thread:exec": False, "thread:kill": False}


class HarmTest(unittest.TestCase):
    setUp = shim_test.ShimTest.setUp
    run_with = shim_test.ShimTest.run_with
    streams = shim_test.ShimTest.streams
    check_sound = shim_test.ShimTest.check_sound
    one = shim_test.ShimTest.one

    def client(self, *args, **kw):
        return self.run_with([f"{shim_test.BIN}/harm_client",
                              *map(str, args)], **kw)

    def alike(self, *args, **kw):
        """Runs without and with the shim: same output, same end."""
        bare = self.client(*args, shim=False, check=None, **kw)
        done = self.client(*args, check=None, **kw)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (bare.returncode, bare.stdout, bare.stderr))
        return done

    def sizes(self, s):
        return [c.words["BYTES"] // 16 for c in s.calls
                if c.name == "cudaMalloc"]

    # ---- results -------------------------------------------------------

    def test_errors_errno_and_last_error_are_the_real_ones(self):
        # Enough calls for write-outs and clock samples in between.
        done = self.alike("errors", 3000)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        results = collections.Counter(
            (c.name, c.result) for c in self.one().calls)
        self.assertEqual(results["cudaMalloc", 2], 3000)
        self.assertEqual(results["cuMemAlloc_v2", 2], 3000)
        self.assertEqual(results["cudaFree", 1], 3000)

    def test_exceptions_pass_through_calls(self):
        self.assertEqual(self.alike("exceptions", 500).returncode, 0)
        s = self.one()
        # A call that an exception left has no end; those after it are not
        # taken to be inside it.
        outer = [c for c in s.calls if c.depth == 0]
        self.assertEqual({c.name for c in outer}, {"cudaDeviceSynchronize",
                                                   "cuMemAlloc_v2",
                                                   "cuCtxSynchronize"})
        self.assertEqual(
            [c.name for c in outer].count("cudaDeviceSynchronize"), 500)
        self.assertEqual(s.inflight, [])

    def test_driver_call_inside_a_runtime_call_is_nested(self):
        self.client("linked", 50)
        s = self.one()
        depths = collections.Counter((c.name, c.depth) for c in s.calls)
        self.assertEqual(depths["cudaMalloc", 0], 50)
        self.assertEqual(depths["cuMemAlloc_v2", 1], 50)
        outer = [c for c in s.calls if c.name == "cudaMalloc"]
        inner = [c for c in s.calls if c.depth == 1]
        for o, i in zip(outer, inner):
            self.assertLessEqual(o.start, i.start)
            self.assertGreaterEqual(o.start + o.duration,
                                    i.start + i.duration)

    def test_program_with_sanitizers(self):
        client = f"{shim_test.BIN}/harm_client_asan"
        if not os.path.exists(client):
            self.skipTest("the compiler has no static sanitizer runtimes")
        env = {"ASAN_OPTIONS": "detect_leaks=0"}
        for args in (["linked", "3000"], ["errors", "1000"],
                     ["exceptions", "100"], ["kernels", "2000"],
                     ["exit_order"]):
            bare = self.run_with([client, *args], shim=False, check=None,
                                 env=env)
            done = self.run_with([client, *args], check=None, env=env)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (bare.returncode, bare.stdout, bare.stderr))
            self.assertGreater(len(self.one().calls), 5)
            os.unlink(self.one().path)

    # ---- kernels -------------------------------------------------------

    def test_many_kernels_with_long_names(self):
        # The second: names that fill a slot with three of them.
        for count, length in ((20000, 40), (300, 5000), (9, 16000)):
            self.client("kernels", count, length)
            s = self.one()
            names = collections.Counter(name for _, name in s.kernel_records)
            self.assertEqual(len(names), count)
            for name in names:
                self.assertEqual(len(name), len(f"_Z{length}v") + length)
            launches = [c for c in s.calls if c.name == "cudaLaunchKernel"]
            self.assertEqual(len(launches), 2 * count)
            self.assertEqual(sum(c.flags & 1 for c in launches), count)
            self.assertEqual(s.lost, {})
            os.unlink(s.path)

    # ---- sudden death --------------------------------------------------

    def end(self, how, n, handlers):
        self.client("die", n, how, check=None)
        s, = self.streams()
        self.assertEqual(s.torn, 0)
        self.assertEqual(s.lost, {})
        expected = sorted([*range(n)] * 2 +
                          [*range(10)] * (how == "pthread_exit"))
        for name in "cudaMalloc", "cuMemAlloc_v2":
            words = s.first_words(name)
            # The runtime's exit handler makes one more, of the driver.
            self.assertEqual(words.count(77),
                             handlers and name == "cuMemAlloc_v2", how)
            self.assertEqual(sorted(w // 16 for w in words if w != 77),
                             expected, how)
        self.assertEqual(s.exited, handlers, how)
        os.unlink(s.path)

    def test_endings_after_100000_calls(self):
        for how, handlers in {**ENDINGS, **MORE_ENDINGS}.items():
            self.end(how, 50000, handlers)

    def test_endings_many_times(self):
        for how, handlers in {**ENDINGS, **MORE_ENDINGS}.items():
            for _ in range(20 if how in ENDINGS else 4):
                self.end(how, 200, handlers)

    def test_endings_while_threads_make_calls(self):
        counts = os.path.join(self.dir, "counts")
        for how in ENDINGS:
            self.client("die_midway", 2000, how, counts, check=None)
            with open(counts, "rb") as f:
                returned = struct.unpack("<2Q", f.read(16))
            self.assertGreaterEqual(min(returned), 2000)
            s, = self.streams()
            self.assertEqual((s.torn, s.lost), (0, {}))
            # Each thread's in order: all that returned, and at most one more.
            by_thread = collections.defaultdict(list)
            for _, record, tid in s.call_records:
                if s.names[record[4] | record[5] << 8][0] == "cudaMalloc":
                    by_thread[tid].append(
                        int.from_bytes(record[24:32], "little") // 16)
            self.assertEqual(len(by_thread), 2)
            made = sorted(by_thread.values(), key=len)
            for calls, count in zip(made, sorted(returned)):
                self.assertEqual(calls, [*range(len(calls))])
                self.assertIn(len(calls) - count, (0, 1), how)
            os.unlink(s.path)

    def test_calls_in_flight_at_death_are_kept(self):
        done = self.client("die", 10, "nested", check=-signal.SIGKILL,
                           env={"HARM_KILL": "1"})
        self.assertEqual(done.stdout, "")
        s, = self.streams()
        names = {f: n[0] for f, n in s.names.items()}
        self.assertEqual([(names[func], depth) for func, depth, _, _
                          in sorted(s.inflight, key=lambda f: f[1])],
                         [("cudaLaunchHostFunc", 0),
                          ("cudaDeviceSynchronize", 1),
                          ("cuCtxSynchronize", 2)])

    # ---- threads and forks ---------------------------------------------

    # What is done once, at the first calls, is what a fork may interrupt. The
    # errors that there were came about once in 400 storms under load.
    def test_forks_amid_the_first_calls(self):
        for _ in range(60):
            self.assertEqual(self.client("fork_storm", 20).stdout, "20\n")

    # Walks over many modules hold the loader's lock for longer: a child that
    # inherited it hung, about once in 30 such storms under load.
    def test_forks_amid_long_walks(self):
        with tempfile.TemporaryDirectory() as folder:
            copies = [f"{folder}/{i}.so" for i in range(400)]
            for copy in copies:
                shutil.copy(f"{shim_test.LIB}/bystander.so", copy)
            preload = ":".join([shim_test.SHIM, *copies])
            for _ in range(30):
                done = self.client("fork_storm", 20, env={"LD_PRELOAD": preload})
                self.assertEqual(done.stdout, "20\n")

    def test_two_thousand_forks_among_threads(self):
        self.assertEqual(self.client("fork_storm", 2000).stdout, "2000\n")
        paths = [os.path.join(self.dir, f) for f in os.listdir(self.dir)]
        self.assertEqual(len(paths), 2001)
        # The largest is the parent's.
        paths.sort(key=os.path.getsize)
        children = [read_stream.load(path) for path in paths[:-1]]
        self.assertEqual(len(children), 2000)
        self.assertEqual(len({s.pid for s in children}), 2000)
        for s in children:
            self.assertEqual([c.depth for c in s.calls], [1, 0])
            self.assertEqual(self.sizes(s), [2])
            self.assertEqual(s.lost, {})

    def test_idle_threads_take_bounded_memory(self):
        bare = int(self.client("idle", 500, shim=False).stdout)
        done = int(self.client("idle", 500).stdout)
        # A slot's first pages, the thread's state and tables of the kernel.
        self.assertLess((done - bare) / 500, 64)

    def test_threads_that_call_while_the_process_exits(self):
        for _ in range(10):
            self.assertEqual(self.alike("detached").returncode, 0)
        for s in self.streams():
            self.assertEqual(s.torn, 0)
            self.assertEqual(s.lost, {})

    def test_handler_that_jumps_out_of_the_recorder(self):
        jumps = int(self.client("jumps", 500).stdout)
        s = self.one()
        self.assertGreaterEqual(jumps, 500)
        # What came after is recorded again, at depth 0.
        frees = [c for c in s.calls if c.name == "cudaFree"]
        self.assertEqual(len(frees), 1000)
        self.assertEqual({c.depth for c in frees}, {0})
        self.assertEqual(s.inflight, [])

    def test_exit_order(self):
        for how, code in (("", 21), ("quick", 21), ("pthread", 0)):
            done = self.alike("exit_order", how, env={"HARM_EXIT": "1"})
            self.assertEqual(done.returncode, code, how)
            s, = self.streams()
            self.assertEqual(s.torn, 0)
            said = [line.split() for line in done.stdout.splitlines()
                    if not line.startswith("runtime")]
            self.assertIn(["key", "0", "0", "0x1680"], said)
            late = {int(line[3], 16) - 0x1000 for line in said}
            seen = {c.words["BYTES"] for c in s.calls
                    if c.name == "cudaMalloc"}
            self.assertLessEqual(late, seen, how)
            made = len([c for c in s.calls if c.name == "cudaMalloc"])
            self.assertEqual(made + sum(s.lost.values()), len(said) + 2)
            os.unlink(s.path)

    def test_children_by_vfork_and_posix_spawn(self):
        self.assertEqual(self.alike("children").returncode, 0)
        by_calls = collections.Counter(
            tuple(self.sizes(s)) for s in self.streams())
        self.assertEqual(by_calls, {tuple(range(6)): 1, tuple(range(3)): 2})

    WORKER = """
import ctypes, multiprocessing, os, sys
r = ctypes.CDLL('libcudart.so.13')
def calls(first, n):
    p = ctypes.c_void_p()
    for i in range(n):
        if r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(16 * (first + i))):
            os._exit(9)
def work(k):
    calls(1000 * k, 20)
    return os.getpid()
if __name__ == '__main__':
    method, workers = sys.argv[1], int(sys.argv[2])
    calls(0, 300)
    if workers:
        with multiprocessing.get_context(method).Pool(workers) as pool:
            pids = pool.map(work, range(1, 41), chunksize=1)
            pool.close()
            pool.join()
        print(len(pids))
    calls(300, 300)
"""

    def test_python_workers_by_fork_forkserver_and_spawn(self):
        script = os.path.join(self.dir, "worker.py")
        with open(script, "w") as f:
            f.write(self.WORKER)
        env = {"LD_LIBRARY_PATH":
               f"{shim_test.LIB}/harm_rt:{shim_test.LIB}/harm_cuda"}
        for method in ("fork", "forkserver", "spawn"):
            for workers in (0, 4):
                self.run_with([sys.executable, script, method, str(workers)],
                              env=env)
                streams = self.streams()
                made = collections.Counter()
                for s in streams:
                    self.assertEqual(s.torn, 0)
                    self.assertEqual(s.lost, {})
                    made.update(self.sizes(s))
                    if self.sizes(s)[:1] == [0]:
                        self.assertEqual(self.sizes(s), [*range(600)])
                self.assertEqual(set(made.values()), {1}, method)
                self.assertEqual(len(made), 600 + (800 if workers else 0))
                self.assertEqual(len({s.pid for s in streams}), len(streams))
                for s in streams:
                    os.unlink(s.path)

    def test_programs_without_cuda_leave_nothing(self):
        source = os.path.join(self.dir, "empty.c")
        with open(source, "w") as f:
            f.write("int main(void) { return 0; }\n")
        folder = os.path.join(self.dir, "traces")
        command = ("for i in $(seq 100); do /bin/true; done; "
                   f"cd {self.dir} && cc -o empty empty.c && ./empty; "
                   "echo $LD_PRELOAD")
        preload = f"{shim_test.SHIM}:{shim_test.LIB}/interposer.so"
        done = self.run_with(["bash", "-c", command], dir=folder,
                             env={"LD_PRELOAD": preload})
        self.assertEqual((done.stdout, done.stderr), (preload + "\n", ""))
        self.assertFalse(os.path.exists(folder))

    def test_two_containers_with_the_same_pids(self):
        # The shim's half of it: what it wrote tells them apart.
        command = ["unshare", "-pf", "--mount-proc",
                   f"{shim_test.BIN}/harm_client", "linked", "10"]
        probe = subprocess.run(command[:3] + ["/bin/true"],
                               stderr=subprocess.PIPE)
        if probe.returncode:
            self.skipTest(f"no pid namespaces: {probe.stderr.decode()}")
        outer = self.run_with([f"{shim_test.BIN}/harm_client", "linked", "10"])
        self.assertEqual(outer.stderr, "")
        for _ in range(2):
            self.run_with(command)
        streams = self.streams()
        self.assertEqual(len(streams), 3)
        inner = [s for s in streams if s.pid == 1]
        self.assertEqual(len(inner), 2)
        self.assertTrue(all(len(s.calls) == 22 for s in streams))
        self.assertEqual(len({s.stream_id for s in streams}), 3)
        self.assertEqual(len({(s.pidns, s.pid, s.start_ticks)
                              for s in streams}), 3)
        host = os.stat("/proc/self/ns/pid").st_ino
        self.assertEqual([s.pidns == host for s in inner], [False] * 2)

    # ---- copies of the runtime -----------------------------------------

    COPIES = """
import ctypes, os, sys
def ask(library):
    n = ctypes.c_int(-1)
    status = library.cudaGetDeviceCount(ctypes.byref(n))
    return status, n.value
ours = [ctypes.CDLL(path) for path in sys.argv[1:]]
for _ in range(3):
    print([ask(library) for library in ours])
with open('/proc/self/maps') as f:
    print(sorted({os.path.basename(line.split()[-1]) for line in f
                  if 'libcudart' in line}))
"""

    def test_copies_of_the_runtime_as_wheels_bring_them(self):
        lib = shim_test.LIB
        paths = [f"{lib}/small_rt13_copy/libcudart-0a1b2c.so.13",
                 "libcudart.so.13", f"{lib}/small_rt12/libcudart.so.12"]
        env = {"LD_LIBRARY_PATH": f"{lib}/small_rt13"}
        for order in (paths, paths[::-1]):
            command = [sys.executable, "-c", self.COPIES, *order]
            bare = self.run_with(command, shim=False, env=env)
            done = self.run_with(command, env=env)
            self.assertEqual(done.stdout, bare.stdout)
            self.assertEqual(done.stdout.count("131"), 3)
            s = self.one()
            mapped = {os.path.basename(text) for way, _, text in
                      self.coverage(s) if way == "MAPPED"}
            self.assertLessEqual({os.path.basename(p) for p in paths}, mapped)
            os.unlink(s.path)

    def coverage(self, s):
        return [(c[0], c[1], c[-1]) for c in s.coverage]

    # ---- look-up by version --------------------------------------------

    VERSIONS = """
import ctypes
c = ctypes.CDLL('libcuda.so.1')
c.cuGetProcAddress_v2.restype = ctypes.c_int
for name in (b'cuCtxCreate', b'cuMemAlloc', b'cuStreamSynchronize', b'cuNone'):
    for version in (3020, 11040, 12050, 13000, 99999):
        for status in (ctypes.c_int(-1), None):
            p = ctypes.c_void_p(7)
            r = c.cuGetProcAddress_v2(name, ctypes.byref(p), version,
                                      ctypes.c_uint64(0),
                                      status and ctypes.byref(status))
            same = None
            for v in ('', '_v2', '_v3', '_v4'):
                try:
                    f = getattr(c, name.decode() + v)
                except AttributeError:
                    continue
                if ctypes.cast(f, ctypes.c_void_p).value == p.value:
                    same = v
            print(name, version, r, status and status.value, bool(p.value),
                  same)
"""

    def test_look_up_answers_the_version_that_was_asked_for(self):
        if not os.path.exists(f"{shim_test.FAKES}/libcuda.so.1"):
            self.skipTest("tests/fakes is not built")
        command = [sys.executable, "-c", self.VERSIONS]
        env = {"LD_LIBRARY_PATH": shim_test.FAKES}
        bare = self.run_with(command, shim=False, env=env).stdout
        self.assertEqual(self.run_with(command, env=env).stdout, bare)
        # The rig tells versions apart.
        self.assertGreater(len({line.split()[-1] for line in
                                bare.splitlines()}), 1)

    # ---- trouble -------------------------------------------------------

    def test_trouble_after_the_first_calls(self):
        for how in ("seccomp", "chroot", "setuid", "descriptors", "closed",
                    "none"):
            if how in ("chroot", "setuid") and os.geteuid() != 0:
                continue
            done = self.alike("trouble", 3000, how)
            self.assertEqual((done.returncode, done.stderr), (0, ""), how)
            if done.stdout.startswith("skip"):
                continue
            s, = self.streams()
            self.check_sound(s)
            self.assertEqual(s.exited, 1)
            lost = sum(s.lost.values())
            made = collections.Counter(c.name for c in s.calls)
            # 9,000 pairs, and those of the runtime's exit handler.
            self.assertEqual(sum(made.values()) + lost, 18002, how)
            self.assertEqual(lost > 0, how not in ("none", "closed"), how)
            self.assertEqual(self.sizes(s)[:1500], [*range(1500)])
            # Lost ones of written blocks have a time range.
            self.assertEqual(sum(x[1] for x in s.losses if x[0] == 1),
                             s.lost.get(1, 0))
            os.unlink(s.path)

    def test_trouble_before_the_first_call(self):
        for how in ("seccomp", "chroot", "setuid", "closed", "none"):
            if how in ("chroot", "setuid") and os.geteuid() != 0:
                continue
            bare = self.client("trouble", 500, how, 0, shim=False)
            done = self.client("trouble", 500, how, 0)
            self.assertEqual(done.stdout, bare.stdout)
            if done.stdout.startswith("skip"):
                continue
            if how in ("none", "closed"):
                self.assertEqual(done.stderr, "", how)
                self.assertEqual(len(self.one().calls), 2002)
                os.unlink(self.one().path)
            else:
                self.assertEqual(len(done.stderr.splitlines()), 1, how)
                self.assertIn("CUDA calls are not recorded", done.stderr)
                self.assertEqual(os.listdir(self.dir), [], how)

    def test_room_for_a_header_and_no_call(self):
        # In units of 1 KiB: one block of the stream.
        command = ["bash", "-c",
                   f"ulimit -f 64; {shim_test.BIN}/harm_client linked 10"]
        bare = self.run_with(command, shim=False)
        done = self.run_with(command)
        self.assertEqual(done.stdout, bare.stdout)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("CUDA calls are not recorded", done.stderr)
        self.assertIn("no space left", done.stderr)
        stream, = self.streams()
        self.assertEqual((stream.calls, stream.lost), ([], {2: 22}))

    def test_unusable_standard_error(self):
        # A reader that has gone: no SIGPIPE.
        command = [f"{shim_test.BIN}/harm_client", "linked", "10"]
        env = {"LD_PRELOAD": shim_test.SHIM, "INGERO_DIR": "/proc/nowhere"}
        out, into = os.pipe()
        os.close(out)
        self.assertEqual(
            subprocess.run(command, env=env, stderr=into).returncode, 0)
        os.close(into)
        # A full pipe that nobody reads: no waiting.
        out, into = os.pipe()
        os.set_blocking(into, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(into, b"x" * 4096)
        os.set_blocking(into, True)
        self.assertEqual(
            subprocess.run(command, env=env, stderr=into,
                           timeout=60).returncode, 0)
        os.close(out)
        os.close(into)
        # Closed, and a file of the program's in its place: no line in it.
        done = self.run_with(["bash", "-c", f"exec 2>&-; {' '.join(command)}"],
                             dir="/proc/nowhere")
        self.assertEqual(done.stderr, "")
        mine = os.path.join(self.dir, "mine")
        code = (f"import ctypes, os; os.dup2(os.open({mine!r}, os.O_CREAT | "
                "os.O_RDWR), 2); r = ctypes.CDLL('libcudart.so.13');"
                "p = ctypes.c_void_p(); r.cudaMalloc(ctypes.byref(p), 1)")
        done = self.run_with(
            [sys.executable, "-c", code], dir="/proc/nowhere",
            env={"LD_LIBRARY_PATH":
                 f"{shim_test.LIB}/harm_rt:{shim_test.LIB}/harm_cuda"})
        self.assertEqual(done.stderr, "")
        self.assertEqual(os.path.getsize(mine), 0)

    def test_odd_settings_are_no_noise_in_other_programs(self):
        odd = {"INGERO_APIS": "lunch", "INGERO_CLOCK": "sundial"}
        done = self.run_with(["bash", "-c", "/bin/true; ls / > /dev/null"],
                             env=odd)
        self.assertEqual(done.stderr, "")
        done = self.client("linked", 10, env=odd)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("ingero: INGERO_", done.stderr)
        self.assertEqual(len(self.one().calls), 22)  # as without a choice

    def test_folder_deleted_in_the_middle(self):
        os.makedirs(os.path.join(self.dir, "sub"))
        done = self.client("trouble", 3000, "deleted",
                           dir=os.path.join(self.dir, "sub"))
        self.assertEqual((done.stdout, done.stderr), ("done\n", ""))

    def test_recording_begins_when_there_are_descriptors_again(self):
        done = self.client("late_start", 700)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("too many open files", done.stderr)
        s = self.one()
        lost = s.lost.pop(2)
        self.assertEqual(s.lost, {})
        self.assertGreaterEqual(lost, 1400)
        self.assertEqual(len(s.calls) + lost, 2 * int(done.stdout) + 2)


if __name__ == "__main__":
    shim_test.main()
