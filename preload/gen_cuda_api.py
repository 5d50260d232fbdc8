#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Facts of cuda_api.def, from the headers and libraries of CUDA's wheels.

  gen_cuda_api.py WHEELS cuda_api.def [--driver-stub libcuda.so]

WHEELS is a folder as cmake/fetch_cuda_headers.sh makes it. Only needed when a
new CUDA release adds functions; the build reads just the checked-in table, and
tests/preload/api_coverage_test.py compares it with the wheels.

Facts are symbol, runtime majors, return and argument kinds: what g++ says of
the declared types, so nothing is parsed that a compiler must understand.
Meaning (class, direction, words, hook) is kept from the existing row of the
same symbol, else taken from the row of the same function with another suffix
(_v2, _ptsz, ...) and the same argument kinds, else OTHER. The file is written
only when it changes; new rows are listed on stdout.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HEADERS = ["cuda.h", "cuda_runtime_api.h", "cudaEGL.h", "cudaVDPAU.h",
           "cuda_egl_interop.h", "cuda_vdpau_interop.h", "cudaGL.h",
           "cuda_gl_interop.h"]

# Stand in for headers of others, of which the CUDA headers use these names.
STAND_INS = {
    "GL/gl.h": "typedef unsigned GLenum, GLuint;\n",
    "EGL/egl.h": "typedef int EGLint;\ntypedef unsigned EGLBoolean;\n",
    "EGL/eglext.h": "typedef void *EGLStreamKHR, *EGLImageKHR, *EGLSyncKHR;\n",
    "vdpau/vdpau.h":
        "typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface;\n"
        "typedef int VdpStatus;\n"
        "typedef VdpStatus VdpGetProcAddress(VdpDevice, unsigned, void **);\n",
}

# Declared only in the profiler's own headers, which no wheel here carries.
UNDECLARED = {
    "cuProfilerInitialize": ("i32", ["ptr", "ptr", "i32"]),
    "cuProfilerStart": ("i32", []),
    "cuProfilerStop": ("i32", []),
    "cudaProfilerInitialize": ("i32", ["ptr", "ptr", "i32"]),
    "cudaProfilerStart": ("i32", []),
    "cudaProfilerStop": ("i32", []),
}

# Exported or declared, and not wrapped: each with its reason.
NOT_WRAPPED = {
    "cuGetExportTable":
        "the tables behind it are checked by address; passed through",
    "cudaGetExportTable":
        "the tables behind it are checked by address; passed through",
    "__cudaGetProcAddress":
        "declared nowhere; in 13.0 to 13.5 it only returns 0",
    "__cudaRegisterHostVar":
        "declared nowhere; enters a variable into a table, no GPU work",
    "__cudaRegisterUnifiedTable":
        "declared nowhere; enters a table of functions, no GPU work",
    "cudaSubgridCreate":
        "declared in no header of 13.3 to 13.5; seen as its driver calls",
    "cudaSubgridWorkerGridCreate":
        "declared in no header of 13.3 to 13.5; seen as its driver calls",
    "cudaSubgridWorksetCreate":
        "declared in no header of 13.3 to 13.5; seen as its driver calls",
}

PROBE = r"""
#include <cstdio>
#include <type_traits>

template <class T, class = void> struct Size {
  static constexpr size_t bytes = 0;
};
template <class T> struct Size<T, std::void_t<decltype(sizeof(T))>> {
  static constexpr size_t bytes =
      std::is_void_v<T> || std::is_function_v<T> ? 0 : sizeof(T);
};
template <class T> constexpr char Kind() {
  if constexpr (std::is_void_v<T>) return 'v';
  else if constexpr (std::is_pointer_v<T>) return 'p';
  else if constexpr (std::is_floating_point_v<T>) return 'f';
  else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) return 'i';
  else {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    return 's';
  }
}
// kind|bytes|bytes pointed at|points at const|"... [with T = the type; ...]"
template <class T> void Show() {
  using P = std::remove_pointer_t<T>;
  printf("\t%c|%zu|%zu|%d|%s", Kind<T>(), Size<T>::bytes, Size<P>::bytes,
         std::is_const_v<P>, __PRETTY_FUNCTION__);
}
template <class R, class... A> void Shape(const char *f, R (*)(A...)) {
  printf("%s", f);
  Show<R>();
  (Show<std::remove_cv_t<A>>(), ...);
  putchar('\n');
}
"""


class Type:
    """A return or argument type; .kind is that of api_macros.h."""

    def __init__(self, shown):
        if "|" not in shown:
            self.kind, self.name, self.target_bytes, self.const = \
                shown, "", 0, False
            return
        letter, size, target, const, text = shown.split("|", 4)
        bits = 32 if int(size) <= 4 else 64
        self.kind = {"v": "void", "p": "ptr", "i": f"i{bits}",
                     "f": f"f{bits}", "s": "s" + size}[letter]
        self.name = re.search(r"T = (.*?)[;\]]", text)[1]
        self.target_bytes, self.const = int(target), const == "1"


class Function:
    """Declared shape of one function."""

    def __init__(self, ret, args):
        self.ret, self.args = ret, args

    @property
    def kinds(self):
        return self.ret.kind, tuple(a.kind for a in self.args)


class Wheels:
    """The unpacked wheels: .sets of (version, major, include, library)."""

    def __init__(self, folder, scratch):
        self.scratch, self.sets, crt = scratch, [], []
        for wheel in sorted(glob.glob(os.path.join(folder, "*.whl"))):
            name, version = os.path.basename(wheel).split("-")[:2]
            into = os.path.join(scratch, name + "-" + version)
            with zipfile.ZipFile(wheel) as z:
                z.extractall(into, [n for n in z.namelist() if re.search(
                    r"/include/[^/]*$|/include/crt/|libcudart\.so", n)])
            if name == "nvidia_cuda_crt":
                crt += glob.glob(into + "/nvidia/*/include")
                continue
            include, = glob.glob(into + "/nvidia/*/include")
            library, = glob.glob(into + "/nvidia/*/lib/libcudart.so.*")
            self.sets.append((version, version.split(".")[0], include,
                              library))
        if not crt or not {s[1] for s in self.sets} >= {"11", "12", "13"}:
            raise FileNotFoundError(
                f"{folder} lacks wheels of CUDA 11, 12, 13 or nvidia_cuda_crt:"
                " run cmake/fetch_cuda_headers.sh " + folder)
        self.crt = crt[-1]
        for path, text in STAND_INS.items():
            path = os.path.join(scratch, "stand-in", path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)

    def flags(self, include):
        return ["-w", "-I" + include, "-I" + self.crt,
                "-I" + os.path.join(self.scratch, "stand-in")]

    @staticmethod
    def source(include):
        # Without cuda_runtime.h, whose C++ overloads would hide the C names.
        return "#define __CUDA_API_VERSION_INTERNAL\n" \
            "#define __CUDA_RUNTIME_H__\n" + "".join(
            f"#include <{h}>\n" for h in ["vdpau/vdpau.h"] + HEADERS)

    def run_cxx(self, include, source):
        """What the program prints, compiled with these headers."""
        program = os.path.join(include, "probe")
        subprocess.run(["g++", "-std=c++20", "-xc++", "-", "-o", program] +
                       self.flags(include), check=True, text=True,
                       input=self.source(include) + source)
        return subprocess.run([program], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def declared(self, include):
        """Name -> Function of all that the headers declare."""
        info = os.path.join(include, "names")
        subprocess.run(["gcc", "-xc", "-", "-fsyntax-only", "-aux-info", info]
                       + self.flags(include), check=True, text=True,
                       input=self.source(include))
        with open(info) as f:
            names = re.findall(r"\*/ extern [^(]*[ *](cu\w+) \(", f.read())
        shown = self.run_cxx(include, PROBE + "int main() {\n" + "".join(
            f'Shape("{n}", decltype(&{n})());\n' for n in sorted(set(names))) + "}\n")
        found = {}
        for line in shown.splitlines():
            name, ret, *args = line.split("\t")
            found[name] = Function(Type(ret), [Type(a) for a in args])
        for name, (ret, args) in {**UNDECLARED, **self.internal()}.items():
            found.setdefault(name,
                             Function(Type(ret), [Type(a) for a in args]))
        return found

    def internal(self):
        """Entries that nvcc's output calls, from its own C++ headers."""
        found = {}
        for path in glob.glob(self.crt + "/crt/*.h"):
            with open(path, errors="replace") as f:
                text = f.read()
            for m in re.finditer(
                    r"extern\s+(?:\"C\"\s+)?([\w* ]*?)\s*CUDARTAPI\s+"
                    r"(__cuda\w+)\s*\(([^)]*)\)\s*;", text):
                ret = m[1].replace("__host__", "").replace("__device__", "")
                found[m[2]] = (self.plain(ret), [
                    self.plain(a) for a in m[3].split(",") if a.strip()])
        return found

    @staticmethod
    def plain(text):
        words = text.replace("*", " * ").split()
        if "*" in words or "cudaStream_t" in words or "cudaKernel_t" in words:
            return "ptr"
        for word, kind in (("dim3", "s12"), ("size_t", "i64"),
                           ("void", "void"), ("int", "i32"),
                           ("unsigned", "i32"), ("char", "i32"),
                           ("cudaError_t", "i32")):
            if word in words:
                return kind
        raise KeyError(f"unknown type {text!r}")


def exported(library):
    """Function symbols, without version nodes."""
    out = subprocess.run(["nm", "-D", "--defined-only", library],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()
            if " A " not in line}


def facts(wheels, stub=None):
    """({driver name: kinds}, {(runtime name, kinds): majors}, [unknown])."""
    driver, runtime, unknown = {}, {}, set()
    for version, major, include, library in reversed(wheels.sets):
        declared = wheels.declared(include)
        for name, f in declared.items():
            if not name.startswith(("cuda", "__")) and \
                    name not in NOT_WRAPPED:
                driver.setdefault(name, f.kinds)
        for name in exported(library) - NOT_WRAPPED.keys():
            if name in declared:
                runtime.setdefault((name, declared[name].kinds),
                                   set()).add(major)
            else:
                unknown.add(f"{name} (libcudart {version})")
    if stub:
        unknown |= {f"{name} ({stub})" for name in
                    exported(stub) - driver.keys() - NOT_WRAPPED.keys()}
    return driver, runtime, sorted(unknown)


ROW = re.compile(r"^(DRIVER|RUNTIME\w+)\((\w+), (\w+), (\d+), \((.*?)\),\s*"
                 r"(.*)\)$", re.S)


def read_rows(path):
    """The file's preamble, and (macro, name, ret, args, meaning) by row."""
    with open(path) as f:
        head, _, text = f.read().partition("/* rows */\n")
    rows = []
    for line in text.replace("\n\t", " ").splitlines():
        m = ROW.match(line)
        if m is None:
            raise ValueError(f"{path}: not a row: {line}")
        args = tuple(a.strip() for a in m[5].split(",") if a.strip())
        if len(args) != int(m[4]):
            raise ValueError(f"{path}: {m[2]}: {m[4]} arguments announced")
        rows.append((m[1], m[2], m[3], args, m[6]))
    return head, rows


SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheels")
    parser.add_argument("table")
    parser.add_argument("--driver-stub")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        driver, runtime, unknown = facts(Wheels(options.wheels, scratch),
                                         options.driver_stub)
    for name in unknown:
        print(f"no declaration of {name}: left out")

    head, old = read_rows(options.table)
    meanings = {(name, args): meaning for _, name, _, args, meaning in old}
    rows = [("DRIVER", n, ret, args) for n, (ret, args) in driver.items()]
    rows += [("RUNTIME_" + "_".join(sorted(majors)), n, ret, args)
             for (n, (ret, args)), majors in runtime.items()]
    rows.sort(key=lambda r: (r[0] != "DRIVER", r[1], r[0]))
    lines = []
    for macro, name, ret, args in rows:
        meaning = meanings.get((name, args))
        if meaning is None:
            base = SUFFIX.sub("", name)
            meaning = next((m for (n, a), m in meanings.items()
                            if SUFFIX.sub("", n) == base and a == args),
                           "OTHER, UNKNOWN, 0, (), NOTHING")
            print(f"new: {name} {args}: {meaning}")
        line = f"{macro}({name}, {ret}, {len(args)}, ({', '.join(args)}),"
        lines.append(line + "\n\t" + re.sub(r"\s+", " ", meaning) + ")\n")
    text = head + "/* rows */\n" + "".join(lines)
    with open(options.table) as f:
        if f.read() == text:
            return
    with open(options.table, "w") as f:
        f.write(text)
    print(f"{len(rows)} rows ({len(driver)} driver)")


if __name__ == "__main__":
    sys.exit(main())
