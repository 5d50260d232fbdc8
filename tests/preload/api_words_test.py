#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One call per row of cuda_api.def and more: every stored field compared.

api_words.c calls each function through the shim with distinct arguments and
writes them down. What the shim must have recorded is worked out here from
those bytes, by an evaluator of the table's expressions that shares nothing
with the shim's macros, and compared with the stream word by word.
"""
import argparse
import glob
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(ROOT, "preload"))
import gen_cuda_api as gen  # noqa: E402
import read_stream  # noqa: E402

OPTIONS = None
BUFFER = 512
FAILING, NULLS = 6, 7  # rounds of api_words.c
U64 = (1 << 64) - 1

UNKNOWN, H2D, D2H, D2D, H2H, PEER, DEFAULT = range(7)
KINDS = {0: H2H, 1: H2D, 2: D2H, 3: D2D, 4: DEFAULT}  # cudaMemcpyKind
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4             # CUmemorytype


class Value(int):
    """An argument passed by value in a register, with its size."""

    def __new__(cls, data, memory=None):
        value = int.__new__(cls, int.from_bytes(data, "little"))
        value.memory, value.bits = memory, 8 * len(data)
        return value

    def __mul__(self, other):
        # As C has it: 32-bit numbers multiply in 32 bits.
        bits = max(self.bits, getattr(other, "bits", 32))
        return Number((int(self) * int(other)) & ((1 << bits) - 1), bits)


class Number(int):
    def __new__(cls, value, bits=64):
        number = int.__new__(cls, value & ((1 << bits) - 1))
        number.bits = bits
        return number

    __mul__ = Value.__mul__


class Row:
    def __init__(self, macro, name, ret, args, meaning):
        self.name, self.ret, self.args = name, ret, args
        parts = split(meaning)
        self.cls, self.direction, self.then = parts[0], parts[1], parts[4]
        words = split(parts[3][1:-1])
        self.words = list(zip(words[::2], words[1::2]))
        assert len(self.words) == int(parts[2]), name


def split(text):
    """At commas outside of parentheses."""
    out, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return [part.strip() for part in out if part.strip()]


def evaluate(text, args, ok, arrays):
    """An expression of the table over the arguments of one call. To `arrays`
    is added whether a copy's extent is in elements of one."""

    def field(p, offset, bits=64):
        if not ok or p == 0:
            return Number(0)
        return Number(int.from_bytes(
            p.memory[offset:offset + bits // 8], "little"))

    def field32(p, offset):
        return field(p, offset, 32)

    def grid(p):
        memory = p if isinstance(p, bytes) else (p.memory or bytes(12))
        if not ok or (not isinstance(p, bytes) and p == 0):
            return 0
        x, y, z = struct.unpack_from("<III", memory)
        return x * y * z

    def volume(p, source, target, offset):
        # Elements of an array are no bytes.
        arrays.append(field(p, source) != 0 or field(p, target) != 0)
        if not ok or p == 0 or arrays[-1]:
            return 0
        x, y, z = struct.unpack_from("<QQQ", p.memory, offset)
        return x * y * z

    def volumes(p, n, stride, source, target, offset):
        if not ok or p == 0:
            return 0
        arrays.append(False)
        total = 0
        for i in range(n):
            start = i * stride
            arrays[-1] |= 2 in (field32(p, start + source),
                                field32(p, start + target))
            x, y, z = struct.unpack_from("<QQQ", p.memory, start + offset)
            total += x * y * z
        return 0 if arrays[-1] else total

    def place(p, offset):
        space = field32(p, offset)
        if space == ARRAY:
            return 0
        return field(p, offset + (8 if space == HOST else 16))

    def spaces(p, source, target):
        source, target = field32(p, source), field32(p, target)
        if 0 in (source, target):
            return UNKNOWN
        if UNIFIED in (source, target):
            return DEFAULT
        return {(True, True): H2H, (True, False): H2D, (False, True): D2H,
                (False, False): D2D}[(source == HOST, target == HOST)]

    def peer_spaces(*where):
        found = spaces(*where)
        return PEER if found in (D2D, DEFAULT) else found

    names = {
        "OUT": lambda p: field(p, 0), "OUT32": lambda p: field32(p, 0),
        "FIELD": field, "FIELD32": field32,
        "FIRST": lambda p, n, offset: field(p, offset) if n else 0,
        "PART": lambda a, at: Number(struct.unpack_from("<Q", a, at)[0]),
        "PART32": lambda a, at: Number(struct.unpack_from("<I", a, at)[0]),
        "GRID": grid,
        "SUM": lambda p, n: 0 if not ok or p == 0 else
               sum(struct.unpack_from(f"<{int(n)}Q", p.memory)),
        "VOLUME": volume, "VOLUMES": volumes, "PLACE": place,
        "PER_THREAD": lambda s: s or 2,
        "KIND": lambda k: KINDS.get(k & 0xffffffff, UNKNOWN),
        "SPACES": spaces, "PEER_SPACES": peer_spaces, "WIDE": Number,
        "UNKNOWN": UNKNOWN, "H2D": H2D, "D2H": D2H, "D2D": D2D, "H2H": H2H,
        "PEER": PEER, "DEFAULT": DEFAULT,
    }
    names.update((f"a{i}", a) for i, a in enumerate(args))
    text = re.sub(r"\(__u64\)(a\d+)", r"WIDE(\1)", text).replace("&a", "a")
    return eval(text, {"__builtins__": {}}, names) & U64


def read_calls(path):
    """(name, round, status, arguments) as api_words.c wrote them."""
    with open(path, "rb") as f:
        data = f.read()
    at, calls = 0, []
    while at < len(data):
        length, round_, status = struct.unpack_from("<III", data, at)
        name = data[at + 12:at + 11 + length].decode()
        at += 12 + length
        count, args = data[at], []
        at += 1
        for _ in range(count):
            size = struct.unpack_from("<H", data, at)[0]
            value = data[at + 2:at + 2 + size]
            at += 2 + size
            points, memory = data[at], None
            at += 1
            if points:
                memory = data[at:at + BUFFER]
                at += BUFFER
            args.append((value, memory))
        calls.append((name, round_, status, args))
    return calls


def classes():
    with open(os.path.join(ROOT, "wire/wire.h")) as f:
        return {name: int(value) for name, value in re.findall(
            r"X\((\w+), (\d+), \"[\w-]+\"\)", f.read())}


class ApiWords(unittest.TestCase):
    def rows_of(self, group):
        rows = {}
        for row in gen.read_rows(os.path.join(ROOT,
                                              "preload/cuda_api.def"))[1]:
            if (row[0] == "DRIVER") == (group == 0) and (
                    group == 0 or str(group) in row[0].split("_")):
                rows[row[1]] = Row(*row)
        return rows

    def record(self, program, group, folder, env=()):
        done = subprocess.run(
            program, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={
                **os.environ, "LD_PRELOAD": OPTIONS.shim,
                "INGERO_DIR": folder, "INGERO_APIS": "all", **dict(env),
                "LD_LIBRARY_PATH":
                    f"{OPTIONS.lib}/whole_api_lib_{group}"})
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        streams = glob.glob(folder + "/cuda-*.ingero")
        self.assertEqual(len(streams), 1, done.stdout)
        return read_stream.load(streams[0])

    def compare_group(self, group):
        rows, ids = self.rows_of(group), classes()
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "calls")
            stream = self.record([f"{OPTIONS.bin}/api_words_{group}", log],
                                 group, folder)
            calls = [c for c in read_calls(log)
                     if rows[c[0]].cls != "REGISTER"]
        self.assertEqual(len(stream.calls), len(calls))
        self.assertEqual({c[0] for c in calls}, {
            name for name, row in rows.items() if row.cls != "REGISTER"})
        compared, wrong, seen, with_array = 0, [], set(), set()
        for (name, round_, status, args), got in zip(calls, stream.calls):
            row, ok = rows[name], status == 0
            args = [value if kind[0] == "s" else Value(value, memory)
                    for kind, (value, memory) in zip(row.args, args)]
            self.assertEqual(ok, round_ != FAILING, name)
            arrays = []
            want = {word: evaluate(e, args, ok, arrays)
                    for word, e in row.words}
            direction = evaluate(row.direction, args, ok, arrays)
            with_array.update((name, a, want["BYTES"] != 0) for a in arrays
                              if ok and round_ != NULLS)
            expected = (name, ids[row.cls], min(status, 0xffff), direction,
                        want)
            found = (got.name, got.cls, got.result, got.direction, got.words)
            compared += 5 + len(want)
            seen.add((row.direction, direction))
            if expected != found:
                wrong.append(f"round {round_}: want {expected}\n    got "
                             f"{found}")
        self.assertEqual(wrong, [], "\n".join(wrong[:10]))
        self.assertGreater(compared, 20 * len(rows))
        for name in {name for name, *_ in with_array}:
            self.assertEqual({a for n, a, _ in with_array if n == name},
                             {False, True}, name)
        self.assertEqual({(a, known) for _, a, known in with_array} -
                         {(False, False)},
                         {(True, False), (False, True)} if with_array
                         else set())
        return seen

    def test_driver(self):
        seen = self.compare_group(0)
        # The rounds of small numbers reached every direction there is.
        both = {d for text, d in seen if text.startswith("SPACES")}
        self.assertEqual(both, {UNKNOWN, H2D, D2H, D2D, H2H, DEFAULT})
        peers = {d for text, d in seen if text.startswith("PEER_SPACES")}
        self.assertLessEqual({UNKNOWN, PEER}, peers)

    def test_runtime_11(self):
        seen = self.compare_group(11)
        self.assertEqual({d for text, d in seen if text.startswith("KIND")},
                         {UNKNOWN, H2D, D2H, D2D, H2H, DEFAULT})

    def test_runtime_12(self):
        self.compare_group(12)

    def test_runtime_13(self):
        self.compare_group(13)

    def captured(self, program, lost=()):
        """Bytes of each cudaMemsetAsync -> was it marked as captured?"""
        library = f"{OPTIONS.lib}/whole_api_lib_13/libcudart.so.13"
        before = f"""
import ctypes
rt = ctypes.CDLL({library!r})
a, b, c = (ctypes.c_void_p(s) for s in (0x7000, 0x8000, 0x9000))
e, f = (ctypes.c_void_p(s) for s in (0x70, 0x80))
rt.whole_api_answer(1)
def work(n, stream):
    rt.cudaMemsetAsync(None, 0, ctypes.c_size_t(n), stream)
"""
        with tempfile.TemporaryDirectory() as folder:
            stream = self.record([sys.executable, "-c", before + program], 13,
                                 folder)
        self.assertEqual(stream.lost, dict(lost))
        return {c.words["BYTES"]: bool(c.flags & 2) for c in stream.calls
                if c.name == "cudaMemsetAsync"}

    def test_a_capture_that_fails_at_its_end_is_over(self):
        self.assertEqual(self.captured("""
def end(status):
    rt.whole_api_answer(0)
    rt.whole_api_fail_with(status)
    rt.cudaStreamEndCapture(a, None)
    rt.whole_api_answer(1)
work(1, a)
rt.cudaStreamBeginCapture(a, 0)
work(2, a)
end(1)    # invalid value: still capturing
work(3, a)
end(908)  # the wrong thread: still capturing
work(4, a)
end(901)  # invalidated: the capture is over
work(5, a)
"""), {1: False, 2: True, 3: True, 4: True, 5: False})

    def test_captures_beyond_those_followed_are_counted(self):
        self.assertEqual(self.captured("""
for i in range(34):
    rt.cudaStreamBeginCapture(ctypes.c_void_p(0x100 + i), 0)
work(1, ctypes.c_void_p(0x100))
work(2, ctypes.c_void_p(0x100 + 33))
for i in range(66):
    rt.cudaEventRecord(ctypes.c_void_p(0x900 + i), ctypes.c_void_p(0x100))
""", {8: 2 + 2}), {1: True, 2: False})

    def test_streams_join_a_capture_through_events(self):
        self.assertEqual(self.captured("""
rt.cudaEventRecord(f, c)           # before any capture
rt.cudaStreamBeginCapture(a, 0)
rt.cudaEventRecord(e, a)
work(1, b)
rt.cudaStreamWaitEvent(c, f, 0)    # not of the capture
work(2, c)
rt.cudaStreamWaitEvent(b, e, 0)    # joins
work(3, b)
rt.cudaEventRecordWithFlags(f, a, 1)  # for those outside
rt.cudaStreamWaitEvent(c, f, 1)
work(4, c)
rt.cudaEventRecord(f, b)           # through the stream that joined
rt.cudaStreamWaitEvent(c, f, 0)
work(5, c)
rt.cudaStreamEndCapture(a, None)
work(6, a); work(7, b); work(8, c)
rt.cudaStreamBeginCapture(b, 0)
rt.cudaStreamWaitEvent(a, e, 0)    # that event's capture is over
work(9, a); work(10, b)
"""), {1: False, 2: False, 3: True, 4: False, 5: True, 6: False, 7: False,
       8: False, 9: False, 10: True})


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for name in ("shim", "bin", "lib"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)


if __name__ == "__main__":
    main()
