#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""preload/cuda_api.def against CUDA's headers and libraries, 11.8 to 13.x.

Prints what is not wrapped and why. Fails on anything else that is missing, on
an argument of another kind, and where the wheels are missing (they are what
cmake/fetch_cuda_headers.sh fetches, with exact versions).
"""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wheels_case  # noqa: E402
from wheels_case import OPTIONS, gen  # noqa: E402

FETCH = os.path.join(wheels_case.ROOT, "cmake/fetch_cuda_headers.sh")


def differences(rows, sets, stubs):
    """What the table lacks or has wrong, as lines.

    sets: (version, major, Name -> gen.Function, exported names);
    stubs: (path, exported names of a driver).
    """
    driver = {}
    runtime = {"11": {}, "12": {}, "13": {}}
    for macro, name, ret, args, _ in rows:
        if macro == "DRIVER":
            driver[name] = (ret, args)
        else:
            for major in macro.removeprefix("RUNTIME_").split("_"):
                runtime[major][name] = (ret, args)
    out, seen = [], set()

    def compare(where, name, row, fact):
        seen.add((where.split()[0], name))
        if name in gen.NOT_WRAPPED:
            if row:
                out.append(f"{name}: wrapped, and listed as not wrapped")
        elif row is None:
            out.append(f"{where}: {name} has no row")
        elif fact is None:
            out.append(f"{where}: {name} is declared nowhere")
        elif row != fact.kinds:
            out.append(f"{where}: {name} is {fact.kinds}, its row {row}")

    for version, major, declared, exports in sets:
        for name in exports:
            compare(f"{major} libcudart {version}", name,
                    runtime[major].get(name), declared.get(name))
        for name, fact in declared.items():
            if not name.startswith(("cuda", "__")):
                compare(f"driver cuda.h {version}", name, driver.get(name),
                        fact)
    for path, exports in stubs:
        for name in exports:
            if name not in driver and name not in gen.NOT_WRAPPED:
                out.append(f"{path}: {name} has no row")
    # The other way round: rows that no header or library knows.
    for where, names in [("driver", driver)] + list(runtime.items()):
        out += [f"{where}: the row {name} is in no header or library"
                for name in names if (where, name) not in seen]
    out += [f"NOT_WRAPPED has {name}, which nobody exports or declares"
            for name in gen.NOT_WRAPPED
            if not any(n == name for _, n in seen)]
    return out


class ApiCoverage(wheels_case.WheelsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sets = [(version, major, facts, gen.exported(library))
                    for (version, major, _, library), facts
                    in zip(cls.wheels.sets, cls.declared)]
        cls.stubs = [(path, gen.exported(path)) for path in sorted(
            set(map(os.path.realpath, glob.glob(
                "/usr/local/cuda*/**/stubs/libcuda.so", recursive=True))))]

    def test_the_wheels_are_the_pinned_ones(self):
        pinned = subprocess.run([FETCH, "--list"], check=True, text=True,
                                stdout=subprocess.PIPE).stdout.split()
        here = sorted(
            "{}=={}".format(*os.path.basename(w).split("-")[:2])
            for w in glob.glob(os.path.join(OPTIONS.wheels, "*.whl")))
        self.assertEqual(sorted(p.replace("-", "_") for p in pinned), here)

    def test_every_function_has_a_row_of_its_shape(self):
        self.assertEqual(differences(self.table, self.sets, self.stubs), [])
        print(f"\n{len(self.table)} rows; not wrapped, of " + ", ".join(
            f"{v} ({len(e)} exported)" for v, _, _, e in self.sets) + ":")
        for name, why in gen.NOT_WRAPPED.items():
            where = [v for v, _, facts, exports in self.sets
                     if name in exports or name in facts]
            print(f"  {name}: {why} ({' '.join(where)})")
        print("driver's own exports compared: " + (", ".join(
            f"{p} ({len(e)})" for p, e in self.stubs) or
            "no toolkit with a stub of libcuda.so here; the headers declare "
            "them"))

    def test_every_name_that_can_be_asked_for_by_version_is_known(self):
        names = {name for macro, name, *_ in self.table if macro == "DRIVER"}
        known = {gen.SUFFIX.sub("", n) for n in names}
        for version, _, include, _ in self.wheels.sets:
            asked = set()
            for path in glob.glob(include + "/cuda*Typedefs.h"):
                with open(path, errors="replace") as f:
                    asked |= set(re.findall(r"\*PFN_(cu\w+?)_v\d+\w*\)",
                                            f.read()))
            self.assertGreater(len(asked), 300, version)
            asked -= {"cuWGLGetDevice"} | gen.NOT_WRAPPED.keys()  # Windows
            self.assertEqual(asked - known, set(), version)

    def test_what_is_planted_is_found(self):
        def with_row(name, change):
            return differences(
                [r for row in self.table for r in
                 ([row] if row[1] != name else change(row))],
                self.sets, self.stubs)

        gone = with_row("cuLaunchKernelEx", lambda r: [])
        self.assertTrue(any("cuLaunchKernelEx has no row" in d for d in gone))
        short = with_row("cudaMemcpyAsync",
                         lambda r: [(*r[:3], r[3][:-1], r[4])])
        self.assertTrue(any("cudaMemcpyAsync is" in d for d in short))
        kind = with_row("cuMemAlloc_v2",
                        lambda r: [(*r[:3], ("ptr", "i32"), r[4])])
        self.assertTrue(any("cuMemAlloc_v2 is" in d for d in kind))
        more = differences(
            self.table + [("DRIVER", "cuNoSuch", "i32", (), "")],
            self.sets, self.stubs)
        self.assertEqual(
            more, ["driver: the row cuNoSuch is in no header or library"])
        new = differences(
            self.table, [(*self.sets[-1][:3], self.sets[-1][3] | {"cudaNew"})] +
            self.sets[:-1], self.stubs)
        self.assertEqual(len(new), 1, new)


if __name__ == "__main__":
    wheels_case.main()
