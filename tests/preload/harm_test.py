#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program could notice of the shim, and what trouble may cost.

  harm_test.py --shim libingero_cuda.so --bin DIR --lib DIR --fakes DIR

The cases of the field that shim_test.py does not hold: each runs a real
process on stand-ins of CUDA, mostly with and without the shim, and compares.
"""
import collections
import os
import signal
import unittest

import read_stream
import shim_test

ENDINGS = ("_exit", "quick_exit", "kill", "abort", "segv", "exec")


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

    def test_six_endings_twenty_times(self):
        for how in ENDINGS:
            for i in range(20):
                n = 50000 if i == 0 and how == "kill" else 200
                self.client("die", n, how, check=None)
                s, = self.streams()
                self.assertEqual(s.torn, 0)
                self.assertEqual(s.lost, {})
                self.assertEqual(sorted(self.sizes(s)),
                                 sorted([*range(n)] * 2), how)
                # quick_exit and the others run no exit handler of ours.
                self.assertEqual(s.exited, 0)
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


if __name__ == "__main__":
    shim_test.main()
