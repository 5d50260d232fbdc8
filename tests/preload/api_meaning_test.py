#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What cuda_api.def says of each function, against CUDA's headers.

Where the table reads memory, the headers must have that member at that offset;
what a name or a type says must be recorded. The declared types come from the
same wheels as in api_coverage_test.py.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import api_words_test  # noqa: E402
import wheels_case  # noqa: E402
from wheels_case import gen  # noqa: E402

EXTENT = {"width": 0, "height": 8, "depth": 16}


def extent_at(offset):
    return {offset + at: "extent." + name for name, at in EXTENT.items()}


DRIVER_3D = {32: "srcMemoryType", 40: "srcHost", 48: "srcDevice",
             120: "dstMemoryType", 128: "dstHost", 136: "dstDevice",
             176: "WidthInBytes", 184: "Height", 192: "Depth"}
OPERANDS = {0: "src.type", 40: "dst.type", **extent_at(80)}
# What the table means by an offset: type -> {offset: member}.
MEMBERS = {
    "cudaMemcpy3DParms": {0: "srcArray", 32: "srcPtr.ptr", 64: "dstArray",
                          96: "dstPtr.ptr", 152: "kind", **extent_at(128)},
    "cudaMemcpy3DPeerParms": {0: "srcArray", 32: "srcPtr.ptr", 72: "dstArray",
                              104: "dstPtr.ptr", **extent_at(144)},
    "cudaMemcpy3DBatchOp": OPERANDS,
    "cudaPitchedPtr": {0: "ptr", 8: "pitch"},
    "cudaExtent": {at: name for name, at in EXTENT.items()},
    "cudaMemLocation": {4: "id"},
    "cudaLaunchConfig_st": {0: "gridDim.x", 4: "gridDim.y", 8: "gridDim.z",
                            32: "stream"},
    "cudaLaunchParams": {0: "func", 48: "stream"},
    "CUlaunchConfig_st": {0: "gridDimX", 4: "gridDimY", 8: "gridDimZ",
                          32: "hStream"},
    "CUDA_LAUNCH_PARAMS_st": {0: "function", 40: "hStream"},
    "CUDA_MEMCPY2D_st": {
        16: "srcMemoryType", 24: "srcHost", 32: "srcDevice",
        72: "dstMemoryType", 80: "dstHost", 88: "dstDevice",
        112: "WidthInBytes", 120: "Height"},
    "CUDA_MEMCPY2D_v1_st": {8: "srcMemoryType", 52: "dstMemoryType",
                            84: "WidthInBytes", 88: "Height"},
    "CUDA_MEMCPY3D_st": DRIVER_3D,
    "CUDA_MEMCPY3D_PEER_st": DRIVER_3D,
    "CUDA_MEMCPY3D_v1_st": {16: "srcMemoryType", 80: "dstMemoryType",
                            128: "WidthInBytes", 132: "Height",
                            136: "Depth"},
    "CUDA_MEMCPY3D_BATCH_OP_st": OPERANDS,
    "CUmemAllocationProp_st": {8: "location.type", 12: "location.id"},
    "CUmemLocation_st": {4: "id"},
    "dim3": {0: "x", 4: "y", 8: "z"},
}

# A handle of this type is recorded under this word. An executable graph goes
# before the graph that it was made from.
HANDLES = [("CUstream_st", "STREAM"), ("CUevent_st", "EVENT"),
           ("CUgraphExec_st", "GRAPH"), ("CUgraph_st", "GRAPH"),
           ("CUfunc_st", "KERNEL"), ("CUkern_st", "KERNEL"),
           ("CUmod_st", "MODULE"), ("CUlib_st", "MODULE"),
           ("CUctx_st", "CONTEXT"), ("CUgreenCtx_st", "CONTEXT"),
           ("cudaExecutionContext_st", "CONTEXT")]
# Where it is not. A word occurs once in a record, so a second handle of a kind
# (the destination of copied attributes, the end of a measured time) is left.
NO_HANDLE = {
    r"cu(da)?EGLStream\w+Frame": "pStream may be left as it was",
    r"cu(da)?LibraryEnumerateKernels|cuModuleEnumerateFunctions":
        "an array, which may be empty",
}

# What a name means: the first that fits it, without its suffixes.
CLASSES = [
    (r"__cuda(Unr|R)egister\w+|__cudaInitModule", "REGISTER"),
    (r"cu(da)?GetProcAddress|cudaGetDriverEntryPoint\w*", "RESOLVE"),
    (r"cu(da)?LaunchHostFunc|cu(da)?StreamAddCallback", "HOST_FUNC"),
    (r"(__)?cu(da)?Launch\w*", "LAUNCH"),
    (r"cu(da)?GraphLaunch", "GRAPH_LAUNCH"),
    (r"cu(da)?Graph(?!ics)\w+", "GRAPH"),
    (r"cu(da)?Stream(Begin|End|Update)\w*Capture\w*|"
     r"cu(da)?StreamBeginRecapture\w+", "CAPTURE"),
    (r"cu(da)?Memcpy\w*Async|cuFabricCpy\w+|cuMemBatchDecompress\w+",
     "COPY_ASYNC"),
    (r"cu(da)?Memcpy\w*", "COPY"),
    (r"cu(da)?Memset\w*Async", "MEMSET_ASYNC"),
    (r"cu(da)?Memset\w*", "MEMSET"),
    (r"cu(da)?(MemPrefetch|MemDiscard)\w+", "PREFETCH"),
    (r"cu(da)?(Malloc|MemAlloc)Managed", "ALLOC_MANAGED"),
    (r"cudaMallocHost|cudaHostAlloc|cudaHostRegister|cuMemAllocHost|"
     r"cuMemHostAlloc|cuMemHostRegister", "ALLOC_HOST"),
    (r"cu(da)?(Malloc|MemAlloc)\w*Async", "ALLOC_ASYNC"),
    (r"cudaMalloc\w*|cuMemAlloc\w*|cuMemCreate|cuMemMap|cuArray(3D)?Create|"
     r"cuMipmappedArrayCreate", "ALLOC"),
    (r"cudaFreeHost|cudaHostUnregister|cuMemFreeHost|cuMemHostUnregister",
     "FREE_HOST"),
    (r"cudaFreeAsync|cuMemFreeAsync|cuMemUnmap|cuMemRelease", "FREE_ASYNC"),
    (r"cudaFree\w*|cuMemFree|cuArrayDestroy|cuMipmappedArrayDestroy", "FREE"),
    (r"cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize",
     "SYNC_DEVICE"),
    (r"cu(da)?StreamSynchronize", "SYNC_STREAM"),
    # Of a part of the device: what it has drained is not known by stream.
    (r"cu(da)?EventSynchronize|cudaExecutionCtxSynchronize", "SYNC_EVENT"),
    (r"cu(da)?StreamQuery", "QUERY_STREAM"),
    (r"cu(da)?EventQuery", "QUERY_EVENT"),
    (r"cu(da)?EventRecord\w*", "EVENT_RECORD"),
    (r"cu(da)?\w*WaitEvent", "STREAM_WAIT_EVENT"),
    (r"cu(da)?Event(Create|CreateWithFlags|Destroy|ElapsedTime)|"
     r"cu(da)?\w+RecordEvent", "EVENT"),
    (r"cu(da)?Stream(Create\w*|Destroy)|cuGreenCtxStreamCreate|"
     r"cudaExecutionCtxStreamCreate", "STREAM"),
    (r"cu(GL|VDPAU)?Ctx(Create|Destroy|Attach|Detach|PushCurrent|PopCurrent|"
     r"SetCurrent|FromGreenCtx)|cuDevicePrimaryCtx(Retain|Release|Reset|"
     r"SetFlags)|cu(da)?GreenCtx(Create|Destroy)|cudaExecutionCtxDestroy|"
     r"cuInit", "CONTEXT"),
    (r"cudaSetDevice(Flags)?|cudaInitDevice|cudaDeviceReset|cudaThreadExit",
     "DEVICE"),
    (r"cu(Module|Library|da(?=Library)Library)(Load\w*|Unload)|"
     r"cuModuleGetFunction|cu(da)?LibraryGet(Kernel|Global|Managed|Module|"
     r"UnifiedFunction)|cuModuleGetGlobal|cuKernelGetFunction|cuFuncLoad|"
     r"cudaGetFuncBySymbol|(__)?cudaGetKernel|cuLink\w+", "MODULE"),
]
NOT_OF_CLASS = {"cuModuleLoadingMode"}

# Submissions and allocations say how much, but for these.
NO_BYTES = {
    r"cudaMalloc(3D)?Array|cudaMallocMipmappedArray|cuArray(3D)?Create|"
    r"cuMipmappedArrayCreate": "an array's format decides",
    r"cuFabricCpyBatchAsync|cuMemBatchDecompressAsync":
        "in the batch's own structs, which vary",
}
SIZED = {"COPY", "COPY_ASYNC", "MEMSET", "MEMSET_ASYNC", "PREFETCH", "ALLOC",
         "ALLOC_ASYNC", "ALLOC_HOST", "ALLOC_MANAGED"}
DIRECTIONS = {"HtoD": "H2D", "HtoA": "H2D", "DtoH": "D2H", "AtoH": "D2H",
              "DtoD": "D2D", "AtoD": "D2D", "DtoA": "D2D", "AtoA": "D2D"}

READ = re.compile(
    r"\b(OUT32|OUT|FIELD32|FIELD|FIRST|PART32|PART|GRID|SUM|VOLUMES?|PLACE|"
    r"SPACES|PEER_SPACES|KERNEL_NAME|KERNEL_ALIAS|PROC_ADDRESS)"
    r"\(([^()]*)\)")


def base_of(name):
    return gen.SUFFIX.sub("", name)


def listed(table, name):
    return any(re.fullmatch(pattern, base_of(name)) for pattern in table)


class ApiMeaning(wheels_case.WheelsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = [api_words_test.Row(*row) for row in cls.table]

    def shapes(self):
        """(row, declared Function, set) for each declaration of its kinds."""
        for row in self.rows:
            for declared, s in zip(self.declared, self.wheels.sets):
                f = declared.get(row.name)
                if f and f.kinds == (row.ret, row.args) and all(
                        a.name for a in f.args):
                    yield row, f, s

    def test_memory_is_read_where_the_headers_have_that_member(self):
        wrong, members = [], {}
        for row, f, (version, _, include, _) in self.shapes():
            text = ", ".join([row.direction, row.then] +
                             [e for _, e in row.words])
            for what, inside in READ.findall(text):
                first, *numbers = [p.strip() for p in inside.split(",")]
                arg = f.args[int(first.lstrip("&a"))]
                pointee = re.sub(r"const|\*| ", "", arg.name)
                numbers = [int(n) for n in numbers if n.isdigit()]

                def need(condition):
                    if not condition:
                        wrong.append(f"{version} {row.name}: {what}({inside})"
                                     f" of {arg.name}, {arg.target_bytes}")

                def at(*offsets):
                    for offset in offsets:
                        members.setdefault(include, set()).add(
                            (pointee, offset))

                if what in ("OUT", "OUT32", "KERNEL_NAME", "KERNEL_ALIAS"):
                    need(arg.target_bytes == (4 if what == "OUT32" else 8))
                    need(not arg.const)
                elif what == "PROC_ADDRESS":
                    need(arg.name == "const char*")
                    need(f.args[1].name == "void**")
                elif what in ("FIELD", "FIRST"):
                    need(numbers[-1] + 8 <= arg.target_bytes)
                    at(numbers[-1])
                elif what == "FIELD32":
                    need(numbers[0] + 4 <= arg.target_bytes)
                    at(numbers[0])
                elif what in ("PART", "PART32"):
                    need(numbers[0] + (8 if what == "PART" else 4) <=
                         int(arg.kind[1:]))
                    at(numbers[0])
                elif what == "GRID":
                    need(arg.kind == "s12" if first[0] == "&" else
                         arg.target_bytes >= 12)
                    at(0, 4, 8)
                elif what == "SUM":
                    need(arg.target_bytes == 8)
                elif what in ("VOLUME", "VOLUMES"):
                    size, source, target, offset = \
                        [arg.target_bytes, *numbers][-4:]
                    need(arg.target_bytes == size)
                    at(source, target, *(offset + i for i in (0, 8, 16)))
                elif what == "PLACE":
                    need(numbers[0] + 24 <= arg.target_bytes)
                    at(*(numbers[0] + i for i in (0, 8, 16)))
                else:
                    need(max(numbers) + 4 <= arg.target_bytes)
                    at(*numbers)
        self.assertEqual(wrong, [])
        self.assertEqual(len(members), len(self.wheels.sets))
        for include, used in members.items():
            self.assertEqual({u for u in used
                              if u[1] not in MEMBERS.get(u[0], {})}, set())
            shown = self.wheels.run_cxx(
                include, "#include <cstddef>\n#include <cstdio>\n"
                "int main() {\n" + "".join(
                    f'printf("%zu ", offsetof({name}, '
                    f'{MEMBERS[name][offset]}));\n'
                    for name, offset in sorted(used)) + "}\n")
            self.assertEqual(
                [f"{name}.{MEMBERS[name][offset]} at {offset}"
                 for name, offset in sorted(used)],
                [f"{name}.{MEMBERS[name][offset]} at {found}"
                 for (name, offset), found
                 in zip(sorted(used), shown.split())])

    def test_every_handle_is_recorded(self):
        missing = set()
        for row, f, _ in self.shapes():
            if row.cls in ("GETTER", "REGISTER", "RESOLVE") or \
                    listed(NO_HANDLE, row.name):
                continue
            words = dict(row.words)
            taken = set()
            for handle, word in HANDLES:
                for i, arg in enumerate(f.args):
                    text = arg.name.removeprefix("const ")
                    if text.rstrip("*") != handle or text.count("*") > 2 or \
                            word in taken:
                        continue
                    taken.add(word)
                    plain = f"a{i}" if text.count("*") == 1 else f"OUT(a{i})"
                    if row.name.endswith(("_ptsz", "_ptds")) and \
                            word == "STREAM":
                        plain = f"PER_THREAD({plain})"
                    uses = any(re.search(rf"\ba{i}\b", e)
                               for e in [row.then] + list(words.values()))
                    full = len(words) == 4 and word not in words
                    if words.get(word) != plain and not full and not (
                            uses and word != "STREAM"):
                        missing.add(f"{row.name}: {word}, {plain}")
        self.assertEqual(missing, set())

    def test_names_have_the_class_that_they_say(self):
        wrong, seen = [], set()
        for row in self.rows:
            if base_of(row.name) in NOT_OF_CLASS or row.cls == "GETTER":
                continue
            want = next((c for pattern, c in CLASSES
                         if re.fullmatch(pattern, base_of(row.name))), None)
            seen.add(want)
            if want and row.cls != want:
                wrong.append(f"{row.name}: {row.cls}, not {want}")
            if not want and row.cls not in ("OTHER", "DEVICE", "MODULE"):
                wrong.append(f"{row.name}: {row.cls}, which no name says")
        self.assertEqual(wrong, [])
        self.assertEqual({c for _, c in CLASSES} - seen, set())

    def test_words_are_complete(self):
        wrong = []
        for row in self.rows:
            words = dict(row.words)
            if len(words) != len(row.words):
                wrong.append(f"{row.name}: a word twice")
            if row.cls in SIZED and "BYTES" not in words and \
                    not listed(NO_BYTES, row.name):
                wrong.append(f"{row.name}: no BYTES")
            # An extent of these is in elements where an array takes part.
            if re.match(r"cudaMemcpy3D|cuMemcpy3D(Batch|With)", row.name) and \
                    not re.match(r"VOLUMES?\(", words["BYTES"]):
                wrong.append(f"{row.name}: BYTES may be elements")
            if row.cls == "LAUNCH" and row.words[0][0] != "KERNEL":
                wrong.append(f"{row.name}: the kernel is not its first word")
            if row.cls in ("COPY", "COPY_ASYNC") and \
                    row.direction == "UNKNOWN":
                wrong.append(f"{row.name}: no direction")
            if (m := re.search(r"[HDA]to[HDA]", row.name)) and \
                    row.name.startswith("cuMemcpy") and \
                    row.direction != DIRECTIONS[m[0]]:
                wrong.append(f"{row.name}: {row.direction}")
            if row.cls.startswith("FREE") and "ADDRESS" not in words:
                wrong.append(f"{row.name}: no ADDRESS")
            if "PER_THREAD" in str(row.words) and \
                    not row.name.endswith(("_ptsz", "_ptds")):
                wrong.append(f"{row.name}: PER_THREAD without a suffix")
            if row.cls == "COPY_ASYNC" and "STREAM" not in words:
                wrong.append(f"{row.name}: no STREAM")
        self.assertEqual(wrong, [])

    def test_forms_of_a_function_mean_the_same(self):
        """_ptsz and _ptds differ in which stream 0 is, and in nothing else."""
        by_name = {(r.name, r.args): r for r in self.rows}
        compared = 0
        for row in self.rows:
            if not row.name.endswith(("_ptsz", "_ptds")):
                continue
            plain = by_name[(row.name[:-5], row.args)]
            compared += 1
            strip = re.compile(r"PER_THREAD\(((?:[^()]|\([^()]*\))*)\)")
            self.assertEqual(
                (plain.cls, plain.direction, plain.words, plain.then),
                (row.cls, row.direction,
                 [(w, strip.sub(r"\1", e)) for w, e in row.words],
                 strip.sub(r"\1", row.then)), row.name)
        self.assertGreater(compared, 150)


if __name__ == "__main__":
    wheels_case.main()
