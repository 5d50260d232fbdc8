#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refreshes the facts in cuda_api.def from CUDA headers; keeps its meanings.

  gen_cuda_api.py --set 11=INCLUDE,libcudart.so.11.0 --set 12=... \
                  --set 13=...  --driver INCLUDE[,libcuda.so] cuda_api.def

Only needed when a new CUDA release adds functions; the build reads just the
checked-in table. Facts are symbol, runtime majors, return and argument kinds.
Meaning (class, direction, words, hook) is kept from the existing row of the
same symbol, else taken from the row of the same function with another suffix
(_v2, _ptsz, ...) and the same argument kinds, else OTHER. Needs clang and nm.
The file is written only when it changes; new rows are listed on stdout.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = """
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
#include "vdpau/vdpau.h"
#include <cudaEGL.h>
#include <cudaVDPAU.h>
#include <cuda_egl_interop.h>
#include <cuda_vdpau_interop.h>
#include <cudaGL.h>
#include <cuda_gl_interop.h>
"""

# Stands in for the VDPAU header, of which only these names are used.
VDPAU = """
typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface;
typedef int VdpStatus;
typedef VdpStatus VdpGetProcAddress(VdpDevice, unsigned, void **);
"""

# Entry points that nvcc's output calls and no C header declares.
UNDECLARED = {
    "__cudaRegisterFatBinary": ("ptr", ["ptr"]),
    "__cudaRegisterFatBinaryEnd": ("void", ["ptr"]),
    "__cudaUnregisterFatBinary": ("void", ["ptr"]),
    "__cudaRegisterVar": ("void", ["ptr"] * 4 + ["i32", "i64", "i32", "i32"]),
    "__cudaRegisterManagedVar":
        ("void", ["ptr"] * 4 + ["i32", "i64", "i32", "i32"]),
    "__cudaRegisterTexture": ("void", ["ptr"] * 4 + ["i32"] * 3),
    "__cudaRegisterSurface": ("void", ["ptr"] * 4 + ["i32"] * 2),
    "__cudaRegisterFunction":
        ("void", ["ptr"] * 4 + ["i32"] + ["ptr"] * 5),
    "__cudaInitModule": ("i32", ["ptr"]),
    "__cudaPushCallConfiguration": ("i32", ["s12", "s12", "i64", "ptr"]),
    "__cudaPopCallConfiguration": ("i32", ["ptr"] * 4),
    "cudaProfilerStart": ("i32", []),
    "cudaProfilerStop": ("i32", []),
    "__cudaGetKernel": ("i32", ["ptr", "ptr"]),
    "__cudaLaunchKernel": ("i32", ["ptr", "s12", "s12", "ptr", "i64", "ptr"]),
    "__cudaLaunchKernel_ptsz":
        ("i32", ["ptr", "s12", "s12", "ptr", "i64", "ptr"]),
}
# Never wrapped: the tables behind it are checked by address.
UNTOUCHED = {"cudaGetExportTable", "cuGetExportTable"}

STRUCT_BYTES = {
    "dim3": 12, "uint3": 12, "cudaExtent": 24, "cudaPitchedPtr": 32,
    "cudaMemLocation": 8, "CUmemLocation": 8, "CUmemLocation_st": 8,
    "cudaChannelFormatDesc": 20, "cudaIpcEventHandle_t": 64,
    "cudaIpcEventHandle_st": 64, "cudaIpcMemHandle_t": 64,
    "cudaIpcMemHandle_st": 64, "CUipcEventHandle": 64,
    "CUipcEventHandle_v1": 64, "CUipcEventHandle_st": 64,
    "CUipcMemHandle": 64, "CUipcMemHandle_v1": 64, "CUipcMemHandle_st": 64,
}


def kind_of(type_node, enums):
    """Neutral kind of a clang type: i32 i64 ptr f32 f64 void or sN."""
    text = type_node.get("desugaredQualType", type_node["qualType"])
    text = text.replace("const ", "").replace("volatile ", "").strip()
    written = type_node["qualType"].replace("const ", "").strip()
    for name in (written, text):
        name = name.removeprefix("struct ")
        if name in STRUCT_BYTES:
            return f"s{STRUCT_BYTES[name]}"
    if text.endswith(("*", "]", "*const", "*restrict")) or "(*" in text or \
            "(" in text:
        return "ptr"
    if text.startswith("enum ") or text in enums:
        return "i32"
    simple = {
        "void": "void", "float": "f32", "double": "f64", "int": "i32",
        "unsigned int": "i32", "char": "i32", "unsigned char": "i32",
        "short": "i32", "unsigned short": "i32", "signed char": "i32",
        "long": "i64", "unsigned long": "i64", "long long": "i64",
        "unsigned long long": "i64",
    }
    if text in simple:
        return simple[text]
    raise KeyError(f"unknown type {text} (add it to STRUCT_BYTES)")


def declarations(include):
    source = "\n".join(
        line for line in SOURCE.splitlines()
        if not (m := re.match(r"#include <(.*)>", line))
        or os.path.exists(os.path.join(include, m[1])))
    with tempfile.TemporaryDirectory() as stub:
        os.mkdir(os.path.join(stub, "vdpau"))
        with open(os.path.join(stub, "vdpau", "vdpau.h"), "w") as f:
            f.write(VDPAU)
        out = subprocess.run(
            ["clang", "-xc", "-fsyntax-only", "-w", "-I" + include,
             "-I" + stub, "-Xclang", "-ast-dump=json", "-"], input=source,
            stdout=subprocess.PIPE, text=True, check=True).stdout
    tree = json.loads(out)["inner"]
    enums, typedef = set(), {}
    for node in tree:
        if node["kind"] == "EnumDecl" and "name" in node:
            enums.add(node["name"])
        if node["kind"] == "TypedefDecl":
            typedef[node["name"]] = node["type"]
            tag = node.get("inner", [{}])[0].get("ownedTagDecl", {})
            if tag.get("kind") == "EnumDecl":
                enums.add(node["name"])

    def resolve(t):
        name = t.get("desugaredQualType", t["qualType"])
        for _ in range(8):
            plain = name.replace("const ", "").strip()
            if plain in STRUCT_BYTES or plain not in typedef:
                break
            target = typedef[plain]
            name = target.get("desugaredQualType", target["qualType"])
        return {"qualType": t["qualType"], "desugaredQualType": name}

    found = {}
    for node in tree:
        if node["kind"] != "FunctionDecl" or \
                not node["name"].startswith("cu") or \
                node.get("storageClass") == "static":
            continue
        params = [p for p in node.get("inner", [])
                  if p["kind"] == "ParmVarDecl"]
        ret = node["type"]["qualType"].split("(")[0].strip()
        try:
            found[node["name"]] = (
                kind_of(resolve({"qualType": ret}), enums),
                [kind_of(resolve(p["type"]), enums) for p in params])
        except KeyError as error:
            print(f"left out: {node['name']}: {error.args[0]}")
    return found


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()
            if " A " not in line}


ROW = re.compile(r"^(DRIVER|RUNTIME\w+)\((\w+), (\w+), (\d+), \((.*?)\),\s*"
                 r"(.*)\)$", re.S)


def read_meanings(path):
    """(symbol, args) -> text after the facts; and the file's own preamble."""
    meanings, preamble = {}, []
    if not os.path.exists(path):
        return meanings, preamble
    with open(path) as f:
        text = f.read()
    head, _, rows = text.partition("/* rows */\n")
    for row in rows.replace("\n\t", " ").splitlines():
        if m := ROW.match(row):
            args = tuple(a.strip() for a in m[5].split(",") if a.strip())
            meanings[(m[2], args)] = m[6]
    return meanings, head


SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--driver", action="append", default=[])
    parser.add_argument("table")
    options = parser.parse_args()

    driver, runtime = {}, {}
    for spec in options.driver:
        include, _, library = spec.partition(",")
        facts = declarations(include)
        names = exported(library) if library else None
        for name, shape in facts.items():
            if name.startswith("cuda") or name in UNTOUCHED:
                continue
            if names is not None and name not in names:
                continue
            driver.setdefault(name, shape)
    for spec in options.set:
        major, _, rest = spec.partition("=")
        include, _, library = rest.partition(",")
        facts = declarations(include)
        facts.update(UNDECLARED)
        for name in exported(library) - UNTOUCHED:
            if name in facts:
                runtime.setdefault((name, facts[name][0],
                                    tuple(facts[name][1])), []).append(major)
            else:
                print(f"no declaration of {name} in {include}: left out")

    meanings, head = read_meanings(options.table)
    rows = [("DRIVER", n, s[0], tuple(s[1])) for n, s in driver.items()]
    rows += [("RUNTIME_" + "_".join(sorted(majors)), n, r, a)
             for (n, r, a), majors in runtime.items()]
    rows.sort(key=lambda r: (r[0] != "DRIVER", r[1], r[0]))
    lines = []
    for macro, name, ret, args in rows:
        meaning = meanings.get((name, args))
        if meaning is None:
            base = SUFFIX.sub("", name)
            meaning = next((m for (n, a), m in meanings.items()
                            if SUFFIX.sub("", n) == base and a == args), None)
            print(f"new: {name}: {meaning or 'OTHER'}")
        meaning = meaning or "OTHER, UNKNOWN, 0, (), NOTHING"
        line = f"{macro}({name}, {ret}, {len(args)}, ({', '.join(args)}),"
        lines.append(line + "\n\t" + re.sub(r"\s+", " ", meaning) + ")\n")
    text = (head or "") + "/* rows */\n" + "".join(lines)
    old = open(options.table).read() if os.path.exists(options.table) else ""
    if text != old:
        with open(options.table, "w") as f:
            f.write(text)
    print(f"{len(rows)} rows ({len(driver)} driver)")


if __name__ == "__main__":
    sys.exit(main())
