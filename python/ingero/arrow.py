# SPDX-License-Identifier: Apache-2.0
"""Stores of ingero as Arrow data, through pyarrow.

    from ingero import arrow
    arrow.table("run1.store", "SELECT * FROM operations")        a pyarrow.Table
    arrow.read("run1.store", "SELECT * FROM calls")     batches, one at a time
    arrow.export("run1.store", "lake")                  Parquet for a data lake

`ingero export` runs this file. Rows come from `ingero query --format columns`
(docs/formats.md), so a store of any size goes through in bounded memory.

export() writes FOLDER/TABLE/host=HOST/hour=HOUR/RECORDING.parquet, the hour in
UTC. Each row has the columns host, boot_id, recording and mono_to_real_ns (what
is added to a time on CLOCK_MONOTONIC to get that of the wall clock; NULL where it
is not known), and `time`, the wall clock's time itself, where the table has
times: so files of many hosts line up. The file's metadata have them, too.
"""
import argparse
import datetime
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import urllib.parse

try:
    import pyarrow as pa
except ImportError:
    pa = None

MAGIC = b"INGCOL01"
HOUR_NS = 3_600_000_000_000
TIMES = ("t_ns", "begin_ns")
FORMATS = ("parquet", "arrow")
MISSING = ("pyarrow is missing: install it with 'python3 -m pip install "
           "pyarrow' and run this again")


class Error(RuntimeError):
    """One line that says what is wrong."""


def _types():
    return {"integer": pa.int64(), "real": pa.float64(), "text": pa.utf8(),
            "null": pa.null()}


def _ask(ingero, *args):
    try:
        done = subprocess.run([ingero, *args], capture_output=True, text=True,
                              check=False)
    except OSError as e:
        raise Error(f"cannot run {ingero}: {e.strerror}") from e
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it failed"]
        raise Error(lines[-1].partition(": ")[2] or lines[-1])
    return done.stdout


class _Answer:
    """The batches of one question."""

    def __init__(self, store, sql, ingero):
        if pa is None:
            raise Error(MISSING)
        self._errors = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                [ingero, "query", "--db", store, "--format", "columns", sql],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=self._errors)
        except OSError as e:
            raise Error(f"cannot run {ingero}: {e.strerror}") from e
        self._pipe = self._process.stdout
        if self._pipe.read(8) != MAGIC:
            self._fail()
        size, = struct.unpack("<I", self._exactly(4))
        self._columns = json.loads(self._exactly(size))["columns"]
        types = _types()
        self.schema = pa.schema([(c["name"], types[c["type"]])
                                 for c in self._columns])

    def _exactly(self, size):
        data = self._pipe.read(size)
        if len(data) != size:
            self._fail()
        return data

    def _fail(self):
        self._end()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        self._errors.close()
        raise Error(lines[-1].partition(": ")[2] if lines else
                    "the answer ended before its end")

    def _buffer(self):
        size, = struct.unpack("<Q", self._exactly(8))
        return pa.py_buffer(self._exactly(size))

    def __iter__(self):
        while True:
            rows, = struct.unpack("<I", self._exactly(4))
            if rows == 0:
                break
            arrays = []
            for field in self.schema:
                count = 0 if pa.types.is_null(field.type) else (
                    3 if pa.types.is_string(field.type) else 2)
                buffers = [self._buffer() for _ in range(count)] or [None]
                arrays.append(pa.Array.from_buffers(field.type, rows, buffers))
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._process.wait() != 0:
            self._fail()
        self.close()

    def close(self):
        self._end()
        self._errors.close()

    def _end(self):
        self._pipe.close()
        if self._process.poll() is None:
            try:
                self._process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()


def read(store, sql, ingero="ingero"):
    """A pyarrow.RecordBatchReader: at most 65,536 rows are held at once."""
    answer = _Answer(store, sql, ingero)
    return pa.RecordBatchReader.from_batches(answer.schema, iter(answer))


def table(store, sql, ingero="ingero"):
    """The whole answer as a pyarrow.Table."""
    return read(store, sql, ingero).read_all()


def hours(begin_ns, end_ns, offset_ns):
    """(label, from, to) for each UTC hour of [begin_ns, end_ns] on
    CLOCK_MONOTONIC. The first and the last reach out, so that every row is in
    one of them. offset_ns None: the wall clock is not known, one for all."""
    if offset_ns is None:
        return [("unknown", None, None)]
    parts = []
    # Rows may lie a little outside of the span (what was there before it).
    first = (begin_ns + offset_ns) // HOUR_NS - 1
    last = (end_ns + offset_ns) // HOUR_NS + 1
    for hour in range(first, last + 1):
        label = datetime.datetime.fromtimestamp(
            hour * HOUR_NS // 10**9, datetime.timezone.utc)
        parts.append((label.strftime("%Y-%m-%dT%H"),
                      None if hour == first else hour * HOUR_NS - offset_ns,
                      None if hour == last else
                      (hour + 1) * HOUR_NS - offset_ns))
    return parts


class _Writer:
    """One file, named when it is whole; none for no rows."""

    def __init__(self, path, schema, kind):
        self._path, self._schema, self._kind = path, schema, kind
        self._writer = None
        self.rows = 0

    def add(self, batch):
        if self._writer is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            if self._kind == "parquet":
                import pyarrow.parquet as pq
                self._writer = pq.ParquetWriter(self._path + ".new",
                                                self._schema,
                                                compression="zstd")
            else:
                self._writer = pa.ipc.new_file(
                    self._path + ".new", self._schema,
                    options=pa.ipc.IpcWriteOptions(compression="zstd"))
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self, whole):
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            writer.close()
            if whole:
                os.replace(self._path + ".new", self._path)
        except OSError:
            if whole:
                raise
        finally:
            if os.path.exists(self._path + ".new"):
                os.unlink(self._path + ".new")


def _with_identity(batch, identity, time, offset):
    rows = batch.num_rows
    arrays, fields = list(batch.columns), list(batch.schema)
    if time is not None:
        wall = batch.column(batch.schema.get_field_index(time))
        kind = pa.timestamp("ns", "UTC")
        wall = (pa.nulls(rows, kind) if offset is None else
                pa.compute.add(wall, pa.scalar(offset, pa.int64())).cast(kind))
        arrays.append(wall)
        fields.append(pa.field("time", kind))
    for name, value in identity.items():
        kind = pa.int64() if name == "mono_to_real_ns" else pa.utf8()
        arrays.append(pa.nulls(rows, kind) if value is None else
                      pa.repeat(pa.scalar(value, kind), rows))
        fields.append(pa.field(name, kind))
    return arrays, fields


def export(store, folder, format="parquet", tables=None, ingero="ingero",
           progress=None):
    """Writes the tables (default: all) and returns {table: rows}."""
    if pa is None:
        raise Error(MISSING)
    import pyarrow.compute  # noqa: F401
    if format not in FORMATS:
        raise Error(f"'{format}' is not one of parquet and arrow")
    info = json.loads(_ask(ingero, "store", "info", store, "--json"))
    known = {}
    for line in _ask(ingero, "query", "--db", store, "--schema", "--format",
                     "jsonl").splitlines():
        entry = json.loads(line)
        if entry["kind"] == "table":
            known[entry["name"]] = entry
    for name in tables or ():
        if name not in known:
            raise Error(f"no table '{name}'; there are {', '.join(known)}")
    span = info["span"]
    offset = (span["begin_real_ns"] - span["begin_ns"]
              if span["begin_real_ns"] else None)
    identity = {"host": info["host"], "boot_id": info["boot_id"],
                "recording": info["recording"], "mono_to_real_ns": offset}
    metadata = {f"ingero.{k}": "" if v is None else str(v)
                for k, v in identity.items()}
    metadata.update({"ingero.span.begin_ns": str(span["begin_ns"]),
                     "ingero.span.end_ns": str(span["end_ns"]),
                     "ingero.written_by": info["written_by"],
                     "ingero.missing": json.dumps(info["missing"])})
    host = urllib.parse.quote(info["host"] or "unknown", safe="")
    # Of what has no time, one file: in the hour in which the recording began.
    parts = hours(span["begin_ns"], span["end_ns"], offset)
    began = parts[min(1, len(parts) - 1)][0]
    written = {}
    for name in tables or known:
        columns = [c["name"] for c in known[name]["columns"]]
        time = next((t for t in TIMES if t in columns), None)
        written[name] = 0
        for label, begin, end in (parts if time else [(began, None, None)]):
            where = " AND ".join(
                [f"{time} >= {begin}"] * (begin is not None) +
                [f"{time} < {end}"] * (end is not None))
            sql = f"SELECT * FROM {name}" + (" WHERE " + where) * bool(where)
            path = os.path.join(
                folder, name, f"host={host}", f"hour={label}",
                f"{urllib.parse.quote(info['recording'], safe='')}.{format}")
            writer = None
            try:
                answer = _Answer(store, sql, ingero)
                for batch in answer:
                    arrays, fields = _with_identity(batch, identity, time,
                                                    offset)
                    if writer is None:
                        schema = pa.schema(fields, metadata=metadata)
                        writer = _Writer(path, schema, format)
                    writer.add(pa.RecordBatch.from_arrays(arrays,
                                                          schema=schema))
                    written[name] += batch.num_rows
                    if progress:
                        progress(name, written[name])
                if writer is not None:
                    writer.close(True)
            except OSError as e:
                raise Error(f"cannot write {path}: {e.strerror or e}; free "
                            "some space or write elsewhere") from e
            finally:
                if writer is not None:
                    writer.close(False)
    return written


def main(args=None):
    parser = argparse.ArgumentParser(prog="ingero export")
    parser.add_argument("--ingero", default="ingero")
    parser.add_argument("--db", required=True)
    parser.add_argument("--format", default="parquet", choices=FORMATS)
    parser.add_argument("--output", required=True)
    parser.add_argument("--tables", default="")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(args)

    def progress(name, rows):
        if sys.stderr.isatty():
            print(f"\r\033[K{name}: {rows:,} rows", end="", file=sys.stderr)

    # Ends as Ctrl-C does: with nothing half written.
    for number in signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda n, frame: sys.exit(128 + n))
    try:
        written = export(options.db, options.output, options.format,
                         [t for t in options.tables.split(",") if t] or None,
                         options.ingero, progress)
    except Error as e:
        print(f"ingero export: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ingero export: interrupted", file=sys.stderr)
        return 130
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if not options.quiet:
        tables = [rows for rows in written.values() if rows]
        print("ingero export: nothing was written: no row of what was asked "
              "for" if not tables else
              f"ingero export: wrote {options.output} ({len(tables)} "
              f"table{'s' if len(tables) != 1 else ''}, {sum(tables):,} rows)",
              file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
