#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Entry points of NCCL, cuBLAS and cuDNN: a program is the same with and
without, and every call is recorded by name, however it was reached.

  library_test.py --shim libingero_cuda.so --bin DIR --lib DIR --fakes DIR
      --ingero INGERO
"""
import argparse
import collections
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import read_stream  # noqa: E402

OPTIONS = None
LIBRARY = 3  # enum ingero_layer
VECTOR = r"\b__m(256|512)|vector_size|immintrin"
LINKED = ("lazy", "now", "fixed", "noplt")
# What CallAll of library_calls.h makes; the call that throws is not recorded.
ALL = collections.Counter("""
    ncclGetVersion ncclCommInitRank ncclAllReduce ncclGetErrorString
    cublasCreate_v2 cublasSetStream_v2 cublasGemmStridedBatchedEx cublasTestMany
    cublasTestVariadic cublasDasum cublasZdotu cublasTestPair cublasTestMixed
    cublasTestLarge cublasTestErrno cublasSgemm_v2 cublasLtMatmul
    cudnnGetVersion cudnnAddTensor cudnnConvolutionForward""".split())
PLUG_IN = collections.Counter(
    "cublasCreate_v2 cublasSgemm_v2 cublasLtMatmul cudnnGetVersion".split())


def times(counter, n):
    return collections.Counter({k: v * n for k, v in counter.items()})


class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ingero-library-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def run_with(self, command, apis=None, shim=True, env=None):
        full = {k: v for k, v in os.environ.items()
                if not k.startswith(("INGERO_", "LD_", "SUDO_"))}
        full.update(INGERO_DIR=self.dir, LD_LIBRARY_PATH=OPTIONS.fakes,
                    FAKE_CUDA="context_ms=1")
        if shim:
            full["LD_PRELOAD"] = OPTIONS.shim
        if apis:
            full["INGERO_APIS"] = apis
        full.update(env or {})
        done = subprocess.run([str(c) for c in command], env=full, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout

    def client(self, kind, *args, **kw):
        return self.run_with([f"{OPTIONS.bin}/library_client_{kind}", *args],
                             **kw)

    def streams(self):
        found = read_stream.load_folder(self.dir)
        for s in found:
            os.unlink(s.path)
        return found

    def same(self, kind, *args, apis="all"):
        """Its stream, where the program said the same without the shim."""
        bare = self.client(kind, *args, shim=False)
        self.assertEqual(self.client(kind, *args, apis=apis), bare)
        streams = self.streams()
        self.assertEqual(len(streams), 1, args)
        return streams[0]

    def names(self, s):
        return collections.Counter(c.name for c in s.calls
                                   if c.layer == LIBRARY)

    def facts(self, s, way):
        return {(detail, os.path.basename(text)): count
                for w, detail, count, text in s.coverage_facts if w == way}

    # ---- arguments, results, ways in -------------------------------------

    def test_calls_through_the_plt_and_the_got(self):
        for kind in LINKED:
            with self.subTest(kind):
                self.assertEqual(self.names(self.same(kind, "call")), ALL)

    def test_pointers_in_data(self):
        for kind in LINKED:
            with self.subTest(kind):
                self.assertEqual(self.names(self.same(kind, "data")), ALL)

    def test_pointers_from_dlsym(self):
        for kind in LINKED + ("host",):
            with self.subTest(kind):
                self.assertEqual(self.names(self.same(kind, "dlsym")), ALL)
        for kind in LINKED:
            with self.subTest(kind):
                self.assertEqual(self.names(self.same(kind, "default")), ALL)

    def test_plug_ins_loaded_and_unloaded(self):
        for kind in ("host", "now"):
            for bind in ("lazy", "now"):
                with self.subTest(f"{kind} {bind}"):
                    s = self.same(kind, "plug-in",
                                  f"{OPTIONS.lib}/library_plug_in_{bind}.so", 5)
                    self.assertEqual(self.names(s), times(ALL + PLUG_IN, 5))

    def test_threads(self):
        for kind in LINKED:
            with self.subTest(kind):
                s = self.same(kind, "threads")
                self.assertEqual(self.names(s), times(ALL, 8 * 51))
                self.assertEqual(s.lost, {})

    def test_exceptions_jumps_and_backtraces_pass(self):
        for kind in LINKED:
            with self.subTest(kind):
                s = self.same(kind, "leave")
                # Those that were left are not recorded, and not around others.
                self.assertEqual(
                    [(c.name, c.depth) for c in s.calls],
                    [("cublasTestCall", 0), ("cublasTestCall", 1),
                     ("cublasTestCall", 0)])

    def test_nothing_is_read_beyond_a_stack(self):
        for kind in LINKED:
            with self.subTest(kind):
                s = self.same(kind, "stack")
                self.assertEqual(
                    self.names(s),
                    {"ncclGetVersion": 128, "ncclCommInitRank": 64})

    # ---- what cannot be hooked ---------------------------------------------

    def escaped(self, s):
        return {(detail, name): n for way, detail, n, name in s.coverage_facts
                if way == "ESCAPED" and not name.startswith(
                    ("cuGetExportTable", "cuEGLStream"))}

    def test_more_functions_than_thunks(self):
        file = f"{OPTIONS.lib}/libcudnn_many.so"
        s = self.same("host", "many", file, 4400)
        names = self.names(s)
        self.assertEqual(names, {f"cudnnMany{i:04}": 2 for i in range(4096)})
        self.assertEqual(self.facts(s, "LIBRARY"),
                         {(36, "libcudnn_many.so"): 4096})
        escaped = self.escaped(s)
        # Named while there is room for names, and counted all.
        self.assertEqual(sum(escaped.values()), 4400 - 4096)
        self.assertEqual(escaped[(2, "cudnnMany4096")], 1)
        self.assertGreater(escaped[(0, "(others)")], 0)
        self.client("host", "many", file, 4400, apis="all")
        self.ingero("merge")
        told = json.loads(self.ingero("stats", "--coverage", "--json"))
        c, = told["coverage"]
        self.assertEqual(sum(e["count"] for e in c["escaped"]), 4400 - 4096)
        self.assertIn("more than can be hooked",
                      {e["name"]: e["why"] for e in c["escaped"]}
                      ["cudnnMany4096"])
        self.assertRegex(" ".join(self.ingero("explain").split()),
                         r"\d+ functions handed out unwrapped: cudnnMany4096,")

    def test_references_that_cannot_be_replaced(self):
        file = f"{OPTIONS.lib}/library_plug_in_read_only.so"
        for kind in LINKED:
            with self.subTest(kind):
                s = self.same(kind, "escape", file)
                calls = {"cublasSetStream_v2": 1}
                escaped = {(3, "ncclGetVersion"): 1}
                # Of a program at a fixed address all use its PLT.
                if kind == "fixed":
                    calls["ncclGetVersion"] = 1
                else:
                    escaped[(4, "ncclGetVersion")] = 1
                self.assertEqual(self.names(s), calls)
                self.assertEqual(self.escaped(s), escaped)

    def test_a_reference_that_was_bound_behind_the_shim(self):
        for kind in ("lazy", "fixed"):
            with self.subTest(kind):
                s = self.same(kind, "late")
                self.assertEqual(self.names(s), {"ncclTestLate": 1})
                self.assertEqual(self.escaped(s), {(5, "ncclTestLate"): 1})

    def test_a_forked_child(self):
        self.client("now", "fork", apis="all")
        streams = sorted(self.streams(), key=lambda s: len(s.calls))
        self.assertEqual(self.names(streams[0]), {"ncclGetVersion": 1})
        self.assertEqual(self.names(streams[1]), ALL)

    def test_errors_of_dlsym(self):
        self.assertEqual(self.client("now", "missing", apis="all"),
                         self.client("now", "missing", shim=False))

    # ---- what is recorded -------------------------------------------------

    def test_status_depth_and_class(self):
        s = self.same("now", "call")
        by_name = {c.name: c for c in s.calls}
        self.assertEqual(by_name["cudnnGetVersion"].result, 0)  # no status
        self.assertEqual(by_name["ncclGetErrorString"].result, 0)
        self.assertEqual(by_name["cublasDasum"].result, 0)  # has a _v2
        self.assertEqual(by_name["ncclCommInitRank"].result, 0xffff)
        self.assertLess(by_name["ncclAllReduce"].result, 8)
        self.assertEqual(by_name["cublasLtMatmul"].depth, 1)
        self.assertEqual({n: by_name[n].cls for n in
                          ("ncclAllReduce", "cublasSgemm_v2", "cublasLtMatmul",
                           "cudnnAddTensor")},
                         {"ncclAllReduce": 33, "cublasSgemm_v2": 34,
                          "cublasLtMatmul": 35, "cudnnAddTensor": 36})
        outer = by_name["cublasSgemm_v2"]
        for c in s.calls:
            if outer.start < c.start < outer.start + outer.duration:
                self.assertGreater(c.depth, 0, c)

    def test_groups_are_chosen(self):
        for apis, groups in [
                (None, ""), ("default", ""), ("launch", ""), ("nccl", "n"),
                ("cublas", "b"), ("cublaslt", "l"), ("cudnn", "d"),
                ("nccl,cudnn", "nd"), ("launch,cublas", "b"), ("all", "nbld"),
                ("all,-cublaslt,-nccl", "bd"), ("-launch,nccl", "n")]:
            s = self.same("now", "call", apis=apis)
            got = self.names(s)
            want = collections.Counter()
            for name in ALL:
                letter = ("n" if name.startswith("nccl") else
                          "l" if name.startswith("cublasLt") else
                          "b" if name.startswith("cublas") else "d")
                if letter in groups:
                    want[name] = 1
            self.assertEqual(got, want, apis)
            launches = sum(c.name == "cudaLaunchKernel" for c in s.calls)
            waits = sum(c.name == "cudaStreamSynchronize" for c in s.calls)
            self.assertEqual(launches, 0 if apis == "-launch,nccl" else 8, apis)
            self.assertEqual(waits, 0 if (apis or "").startswith("launch")
                             else 1, apis)

    def test_coverage_says_what_was_asked_for(self):
        s = self.same("now", "call", apis="cudnn,cublas")
        self.assertEqual(self.facts(s, "CHOICE"), {(0b1010, "cudnn,cublas"): 1})
        hooked = self.facts(s, "LIBRARY")
        self.assertEqual(set(hooked), {(34, "libcublas.so.13"),
                                       (36, "libcudnn.so.9")})
        self.assertEqual(hooked[(36, "libcudnn.so.9")], 3)
        self.assertEqual(self.facts(self.same("now", "call", apis=None),
                                    "CHOICE"), {})
        self.client("now", "fork", apis="all")
        self.streams()
        self.client("now", "missing", apis="all")
        self.assertEqual(self.streams(), [])  # no call of CUDA or a library

    def test_nothing_is_replaced_unasked(self):
        code = ("import ctypes, sys; n = ctypes.CDLL('libnccl.so.2');"
                "p = ctypes.cast(n.ncclGetVersion, ctypes.c_void_p).value;"
                "m = [l for l in open('/proc/self/maps') if int("
                "l.split('-')[0], 16) <= p < int(l.split('-')[1].split()[0],"
                " 16)]; print(m[0].split('/')[-1])")
        command = [sys.executable, "-c", code]
        for apis, file in ((None, "libnccl.so.2"), ("cudnn", "libnccl.so.2"),
                           ("nccl", "libingero_cuda.so")):
            self.assertEqual(self.run_with(command, apis=apis).strip(), file)

    # ---- the readers ------------------------------------------------------

    def ingero(self, *args):
        done = subprocess.run([OPTIONS.ingero, *args], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "INGERO_DIR": self.dir},
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def operations(self, apis):
        shutil.rmtree(self.dir)
        os.mkdir(self.dir)
        self.client("now", "simulate", 40, apis=apis)
        self.ingero("merge")
        report = json.loads(self.ingero("explain", "--json"))
        ops = {layer: {} for layer in ("runtime", "driver", "library")}
        for o in report["operations"]:
            ops[o["layer"]][o["name"]] = (o["count"], o["first_uses"],
                                          o["wall_share"] > 0)
        return ops

    def test_cuda_reads_the_same_around_libraries(self):
        # Two runs: calls are compared, not what took how long.
        plain = self.operations("all,-cublas,-cublaslt,-cudnn,-nccl")
        with_all = self.operations("all")
        self.assertEqual(plain["library"], {})
        self.assertEqual({n: c[0] + c[1] for n, c in
                          with_all["library"].items()},
                         {"cublasCreate_v2": 1, "cudnnConvolutionForward": 40,
                          "cublasSgemm_v2": 40, "cublasLtMatmul": 40})
        for layer in ("runtime", "driver"):
            self.assertEqual({n: c[0] + c[1] for n, c in
                              with_all[layer].items()},
                             {n: c[0] + c[1] for n, c in plain[layer].items()})
        # A call inside another library's call is not counted twice.
        self.assertFalse(with_all["library"]["cublasLtMatmul"][2])
        self.assertTrue(with_all["library"]["cublasSgemm_v2"][2])

    def test_stats_say_which_libraries(self):
        self.client("now", "simulate", 3, apis="cublas,nccl,cudnn")
        self.ingero("merge")
        text = self.ingero("stats", "--coverage")
        self.assertRegex(text, r"By name +nccl: 5 functions of\s+\S+libnccl")
        told = json.loads(self.ingero("stats", "--coverage", "--json"))
        c, = told["coverage"]
        self.assertEqual(c["apis"], "cublas,nccl,cudnn")
        self.assertEqual(c["asked"], ["nccl", "cublas", "cudnn"])
        self.assertEqual({e["group"] for e in c["entry_points"]},
                         {"nccl", "cublas", "cudnn"})
        self.assertIn("left out by choice (INGERO_APIS=cublas,nccl,cudnn)",
                      " ".join(text.split()))

    # ---- the real ones ----------------------------------------------------

    def real(self, name):
        for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/lib"):
            found = sorted(glob.glob(f"{folder}/{name}.so.*"))
            if found:
                return found[0]
        self.skipTest(f"{name} is not installed (no CUDA toolkit)")

    def test_real_libraries_answer_the_same(self):
        code = f"""
import ctypes
blas, dnn, nccl = map(ctypes.CDLL, {[self.real(n) for n in
                                     ("libcublas", "libcudnn", "libnccl")]!r})
blas.cublasGetStatusString.restype = ctypes.c_char_p
nccl.ncclGetErrorString.restype = ctypes.c_char_p
dnn.cudnnGetVersion.restype = ctypes.c_size_t
value = ctypes.c_int()
print(blas.cublasGetProperty(0, ctypes.byref(value)), value.value)
print(blas.cublasGetStatusString(3), nccl.ncclGetErrorString(2))
print(nccl.ncclGetVersion(ctypes.byref(value)), value.value)
print(dnn.cudnnGetVersion())
"""
        command = [sys.executable, "-c", code]
        env = {"LD_LIBRARY_PATH": ""}
        bare = self.run_with(command, shim=False, env=env)
        self.assertEqual(self.run_with(command, apis="all", env=env), bare)
        s, = self.streams()
        names = self.names(s)
        for name in ("cublasGetProperty", "cublasGetStatusString",
                     "ncclGetErrorString", "ncclGetVersion",
                     "cudnnGetVersion"):
            self.assertEqual(names[name], 1, names)
        # cuBLAS asks cuBLASLt: through its PLT.
        self.assertGreater(names["cublasLtGetProperty"], 0)
        self.assertTrue(all(c.result == 0 for c in s.calls
                            if c.layer == LIBRARY))

    def test_real_headers_fit_the_thunk(self):
        """Arguments on the stack, and functions that give no status."""
        folder = "/usr/local/cuda/include"
        text = ""
        for pattern in ("cublas*.h", "cudnn*.h", "nccl.h"):
            for path in sorted(glob.glob(f"{folder}/{pattern}")):
                with open(path, errors="replace") as f:
                    text += f.read() + "\n"
        if "ncclGetVersion" not in text or "cudnnGetVersion" not in text:
            self.skipTest("no headers of cuBLAS, cuDNN and NCCL there")
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//.*|^\s*#(.*\\\n)*.*$", " ", text, flags=re.M)
        found = re.findall(
            r"([\w\s*]+?)\b((?:nccl|cublas|cudnn)[A-Z]\w*)\s*\(([^;{}()]*)\)"
            r"\s*;", text)
        self.assertGreater(len(found), 500)
        # Nor a type that is one, or holds one.
        self.assertIsNone(re.search(VECTOR, text))
        no_status = set()
        for kind, name, arguments in found:
            if not kind.strip() or "return" in kind.split():
                continue  # a call in an inline function
            # Vectors beyond 16 bytes would be the one thing not passed on.
            self.assertIsNone(re.search(VECTOR, kind + arguments), name)
            # All on the stack but six, whatever their kind.
            self.assertLessEqual(8 * (arguments.count(",") + 1 - 6), 512, name)
            if not re.search(r"\w*[sS]tatus(_t)?\b|ncclResult_t", kind):
                no_status.add(name)
        with open(os.path.join(os.path.dirname(__file__),
                               "../../preload/library.c")) as f:
            known = set(re.findall(r'"((?:nccl|cublas|cudnn)[A-Z]\w*)"',
                                   f.read()))
        exported = set()
        for n in ("libcublas", "libcublasLt", "libcudnn", "libnccl"):
            library = ctypes.CDLL(self.real(n), os.RTLD_LAZY)
            exported |= {x for x in no_status if hasattr(library, x)}
            # Those of cuBLAS's first interface have a successor.
            known |= {x for x in no_status if hasattr(library, x + "_v2")}
        self.assertGreater(len(exported), 100)
        self.assertEqual(exported - known, set())


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for name in ("shim", "bin", "lib", "fakes", "ingero"):
        parser.add_argument(f"--{name}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    for name, value in vars(OPTIONS).items():
        setattr(OPTIONS, name, os.path.abspath(value))
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
