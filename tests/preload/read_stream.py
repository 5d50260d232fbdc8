#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small reader of CUDA stream files, for the shim's tests.

  read_stream.py FILE|FOLDER...     prints every record as one line

As a module: load(path) -> Stream. Independent of merge/ on purpose: two
readers of one format keep each other honest. See wire/wire.h.
"""
import functools
import glob
import os
import struct
import sys

BLOCK = 65536
KINDS = {1: "CALL", 2: "THREAD", 3: "KNOT", 4: "NAME", 5: "KERNEL", 6: "LOSS",
         7: "SELF", 8: "PROCESS", 9: "COVERAGE"}
WORDS = ["NONE", "BYTES", "STREAM", "KERNEL", "EVENT", "DST", "SRC", "ADDRESS",
         "DEVICE", "CONTEXT", "GRAPH", "BLOCKS", "MODULE", "FLAGS"]
WAYS = {1: "MAPPED", 2: "LINKED", 3: "DLSYM", 4: "PROC_ADDRESS", 5: "ESCAPED",
        6: "DRIVER_ENTRY", 7: "ASKED_BY", 8: "DEEPBIND", 9: "ENTRIES",
        11: "CHOICE", 12: "LIBRARY"}


def crc32c(data, crc=0, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
            table.append(i)
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


CRCC = 0x43435243


class Call:
    """One finished call; words by meaning."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __repr__(self):
        words = " ".join(f"{k}={v:#x}" for k, v in self.words.items())
        return (f"CALL {self.name} tid={self.tid} start={self.start} "
                f"duration={self.duration} result={self.result} "
                f"depth={self.depth} flags={self.flags:#x} {words}")


class Stream:
    def __init__(self, path):
        self.path = path
        self.call_records, self.knots, self.threads = [], [], []
        self.kernels, self.names, self.losses = {}, {}, []
        self.coverage, self.coverage_facts = [], []
        self.self_costs, self.process = [], None
        self.inflight, self.torn, self.kernel_records = [], 0, []
        self.nvtx, self.nvtx_begins, self.nvtx_names = [], [], {0: ""}
        self.blocks = {"LIVE": 0, "DATA": 0, "EMPTY": 0}
        with open(path, "rb") as f:
            data = f.read()
        self._header(data)
        self._blocks(data)

    def _header(self, data):
        magic, major, _, _, _, self.clock, block = struct.unpack_from(
            "<QHHIQII", data, 0)
        assert magic == 0x3141445543474E49, f"{self.path}: no CUDA stream"
        assert major == 1 and block == BLOCK
        check, crc = struct.unpack_from("<II", data, 240)
        assert check == CRCC
        assert crc == crc32c(data[:244] + bytes(4) + data[248:392])
        (self.stream_id, self.boot_id, self.mono, self.real, self.offset,
         self.tsc_hz, self.pid, self.uid, self.start_ticks, _, self.ppid,
         self.pidns, comm, host, version) = struct.unpack_from(
             "<Q16sQQqQIIQIIQ16s64s32s", data, 32)
        self.comm = comm.split(b"\0")[0].decode()
        live = 32 + struct.calcsize("<Q16sQQqQIIQIIQ16s64s32s") + 160
        self.blocks_reserved, self.calls_skipped, self.exited = \
            struct.unpack_from("<QQQ", data, live)
        lost = struct.unpack_from("<64Q", data, live + 24)
        self.lost = {i: n for i, n in enumerate(lost) if n}

    def _blocks(self, data):
        parts, seen = [], set()
        for at in range(BLOCK, len(data), BLOCK):
            magic, kind, state, slot, tid, cursor, _, _ = struct.unpack_from(
                "<IHHIIQQQ", data, at)
            if magic != 0x4B4C4249:
                self.blocks["EMPTY"] += 1
                continue
            self.blocks["LIVE" if kind == 1 else "DATA"] += 1
            used, sequence = cursor & 0xFFFFFFFF, cursor >> 32
            self._check(data[at:at + BLOCK], kind == 2, used)
            parts.append((slot, sequence, kind == 1, tid,
                          data[at + 128:at + 128 + used]))
            if kind == 2:
                seen.add((slot, sequence))
            else:
                for i in range(4):
                    start, func, _ = struct.unpack_from(
                        "<QII", data, at + 64 + 16 * i)
                    if func:
                        self.inflight.append((func, i, start, tid))
        parts.sort(key=lambda p: p[:2])
        records = []
        tids = {}
        for slot, sequence, live, tid, body in parts:
            if live and (slot, sequence) in seen:
                continue
            at = 0
            while at < len(body):
                kind, flags, size8 = struct.unpack_from("<BBH", body, at)
                if kind == 0 or size8 == 0 or at + size8 * 8 > len(body):
                    self.torn += 1
                    break
                record = body[at:at + size8 * 8]
                if kind == 2:
                    tids[slot] = struct.unpack_from("<I", record, 4)[0]
                records.append((kind, flags, record, tids.get(slot, tid)))
                at += size8 * 8
        for kind, _, r, _ in records:
            if kind == 4:
                func, layer, cls, words = struct.unpack_from("<HBB4s", r, 4)
                self.names[func] = (r[16:].split(b"\0")[0].decode(), layer,
                                    cls, words)
        for kind, flags, r, tid in records:
            self._record(kind, flags, r, tid)

    @functools.cached_property
    def calls(self):
        return [self._call(*record) for record in self.call_records]

    def first_words(self, name):
        """Of all calls of that function; fast."""
        func = {struct.pack("<H", f) for f, n in self.names.items()
                if n[0] == name}
        return [int.from_bytes(r[24:32], "little")
                for _, r, _ in self.call_records if r[4:6] in func]

    def _call(self, flags, r, tid):
        func, result, start, lo, hi, depth = struct.unpack_from(
            "<HHQIHB", r, 4)
        name, layer, cls, kinds = self.names.get(
            func, (f"?{func}", 0, 0, b"\0\0\0\0"))
        values = struct.unpack_from(f"<{(len(r) - 24) // 8}Q", r, 24)
        return Call(
            name=name, layer=layer, cls=cls, func=func, result=result,
            start=start, duration=lo | hi << 32, depth=depth, flags=flags,
            tid=tid, direction=flags >> 4 & 7,
            words={WORDS[k]: v for k, v in zip(kinds, values)})

    def _check(self, block, written, used):
        """A written block's CRCs; of the records' (slow here) the first."""
        check, header, records = struct.unpack_from("<III", block, 40)
        if not written:
            assert (check, header, records) == (0, 0, 0)
            return
        assert check == CRCC
        assert header == crc32c(block[:44] + bytes(4) + block[48:128])
        if self.blocks["DATA"] == 1:
            body = block[128:128 + used]
            part = used // 32 * 8
            parts = [body[i * part:(i + 1) * part if i < 3 else None]
                     for i in range(4)]
            assert records == crc32c(struct.pack("<4I",
                                                 *map(crc32c, parts)))

    def _record(self, kind, flags, r, tid):
        if kind == 1:
            self.call_records.append((flags, r, tid))
        elif kind == 2:
            t, start = struct.unpack_from("<IQ", r, 4)
            self.threads.append((t, r[16:32].split(b"\0")[0].decode()))
        elif kind == 3:
            self.knots.append(struct.unpack_from("<IQQ", r, 4))
        elif kind == 5:
            key = struct.unpack_from("<Q", r, 8)[0]
            name = r[16:].split(b"\0")[0].decode()
            self.kernels[key] = name
            self.kernel_records.append((key, name))
        elif kind == 6:
            self.losses.append(struct.unpack_from("<IQQQ", r, 4))
        elif kind == 7:
            self.self_costs.append(struct.unpack_from("<IQQ", r, 4))
        elif kind == 8:
            n = struct.unpack_from("<I", r, 4)[0]
            self.process = r[16:16 + n]
        elif kind == 32:
            name, start, duration, domain, by = struct.unpack_from(
                "<IQQII", r, 4)
            self.nvtx.append((flags, domain, name, start, duration, by or tid))
        elif kind == 36:
            name, domain, by, start = struct.unpack_from("<IIIQ", r, 4)
            self.nvtx_begins.append((flags, domain, name, start, by or tid))
        elif kind == 35:
            self.nvtx_names[struct.unpack_from("<I", r, 4)[0]] = \
                r[8:].split(b"\0")[0].decode()
        elif kind == 9:
            way, detail, count = struct.unpack_from("<HHQ", r, 4)
            text = r[16:].split(b"\0")[0].decode()
            self.coverage.append((WAYS.get(way, way), count, text))
            self.coverage_facts.append((WAYS.get(way, way), detail, count,
                                        text))


def load(path):
    return Stream(path)


def load_folder(folder):
    return [Stream(p) for p in
            sorted(glob.glob(os.path.join(folder, "cuda-*.ingero")))]


def main():
    for path in sys.argv[1:]:
        for s in load_folder(path) if os.path.isdir(path) else [load(path)]:
            print(f"== {s.path} pid={s.pid} comm={s.comm} exited={s.exited} "
                  f"skipped={s.calls_skipped} lost={s.lost} blocks={s.blocks} "
                  f"torn={s.torn} process={s.process}")
            for call in s.calls:
                print(call)
            for kind in ("threads", "knots", "kernel_records", "losses",
                         "self_costs", "coverage", "inflight"):
                for item in getattr(s, kind):
                    print(kind, item)


if __name__ == "__main__":
    main()
