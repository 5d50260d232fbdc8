#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom, which library stays in which folder, and that each
source file says its licence. See docs/architecture.md for the why."""

import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A folder may include its own files and those of these folders.
ARROWS = {
    "wire": set(),
    "base": {"wire"},
    "preload": {"wire"},
    "code_sampler": {"wire", "base"},
    "bpf": {"wire"},
    "kernel_probe": {"wire", "base", "bpf"},
    "analysis": {"base"},
    "merge": {"wire", "base", "analysis"},
    # Of the shim: what it knows of CUDA's functions, cuda_api.def.
    "import": {"wire", "base", "preload"},
    "query": {"wire", "base", "analysis", "merge"},
    "cli": {"wire", "base", "analysis", "merge", "query", "import",
            "code_sampler"},
    "examples": set(),
}
# Free: they look at everything.
UNCHECKED = {"tests", "bench"}

# Header -> where it may be included: what is swapped out with one folder.
ONLY_IN = {
    r"lmdb\.h": r"merge/store\.(h|cc)",
    r"bpf/(libbpf|bpf|btf)\.h": r"kernel_probe/.*",
    r"bpf/bpf_(helpers|tracing|core_read)\.h": r"bpf/.*",
    r"zstd\.h": r"base/.*",
    r"sqlite3\.h": r"(query/database|import/nsys)\.cc",
}

# Analysis is pure: no I/O, no clock, no printing. (cstdio is for snprintf.)
IMPURE_HEADER = re.compile(
    r"iostream|fstream|filesystem|chrono|c?time(\.h)?|sys/time\.h|unistd\.h|"
    r"fcntl\.h|sys/stat\.h|fmt/(os|ostream|chrono)\.h|"
    r"base/(file|trace_dir)\.h")
IMPURE_CALL = re.compile(r"\b(v?f?printf|f?puts|putchar|fopen|fwrite)\s*\(")

LICENCE = "SPDX-License-Identifier: Apache-2.0"
DUAL_LICENCE = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
DUAL_FOLDERS = {"wire", "bpf"}

SOURCE = re.compile(r".*\.(h|cc|c|cu|S|py|sh)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def violations(path, text):
    """What is wrong with the file `path` (relative to the root)."""
    found = []
    folder = path.split("/")[0]

    head = text.splitlines()[:2]
    licences = [LICENCE]
    if (folder in DUAL_FOLDERS or folder == "tests" or
            path.endswith(".bpf.c")):
        licences.append(DUAL_LICENCE)
    if folder in DUAL_FOLDERS:
        licences.remove(LICENCE)
    if not any(licence in line for line in head for licence in licences):
        found.append(f"{path}: does not begin with '{licences[0]}'")

    if folder in UNCHECKED:
        return found
    if folder == "analysis" and (call := IMPURE_CALL.search(text)):
        found.append(f"{path}: calls {call.group(1)}(), but {folder}/ does "
                     f"not print")
    for quote, header in INCLUDE.findall(text):
        for pattern, where in ONLY_IN.items():
            if re.fullmatch(pattern, header) and not re.fullmatch(where, path):
                found.append(f"{path}: includes {header}, which only "
                             f"{where} may")
        if folder == "analysis" and IMPURE_HEADER.fullmatch(header):
            found.append(f"{path}: includes {header}, but {folder}/ is pure: "
                         f"no I/O, no clock, no printing")
        # <bpf/libbpf.h> is the library's; "bpf/objects.h" is ours.
        target = header.split("/")[0]
        if quote == "<" or "/" not in header or target == folder:
            continue
        if target in UNCHECKED or (target in ARROWS and
                                   target not in ARROWS[folder]):
            allowed = ", ".join(sorted(ARROWS[folder])) or "nothing"
            found.append(f"{path}: includes {header}, but {folder}/ may "
                         f"include {allowed}")
    return found


def source_files():
    for top in sorted(set(ARROWS) | UNCHECKED):
        for folder, subfolders, names in os.walk(os.path.join(ROOT, top)):
            subfolders[:] = [s for s in subfolders if s != "__pycache__"]
            for name in sorted(names):
                if SOURCE.match(name):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


class LayeringTest(unittest.TestCase):

    def test_the_tree_keeps_the_rules(self):
        files = list(source_files())
        self.assertGreater(len(files), 20)
        found = []
        for path in files:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                found += violations(path, file.read())
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_every_folder_with_code_has_a_rule(self):
        for name in os.listdir(ROOT):
            path = os.path.join(ROOT, name)
            if (name.startswith((".", "build")) or not os.path.isdir(path)):
                continue
            if any(re.search(r"\.(h|cc|c|S)$", n) for n in os.listdir(path)):
                self.assertIn(name, set(ARROWS) | UNCHECKED)


class ViolationsTest(unittest.TestCase):
    """The rules themselves: each fires, and a near miss does not."""

    def check(self, path, body, wrong):
        licence = (DUAL_LICENCE if path.split("/")[0] in DUAL_FOLDERS
                   else LICENCE)
        found = violations(path, f"// {licence}\n{body}\n")
        self.assertEqual(len(found), wrong, found)

    def test_arrows(self):
        self.check("base/x.cc", '#include "analysis/trace.h"', 1)
        self.check("base/x.cc", '#include "wire/wire.h"', 0)
        self.check("wire/wire.h", '#include "base/units.h"', 1)
        self.check("preload/x.c", '#include "base/text.h"', 1)
        self.check("analysis/x.cc", '#  include "wire/wire.h"', 1)
        self.check("analysis/rules/x.cc", '#include "analysis/trace.h"', 0)
        self.check("cli/x.cc", '#include "merge/merge.h"', 0)
        self.check("cli/x.cc", '#include "tests/support/x.h"', 1)
        self.check("tests/cli/x.cc", '#include "merge/store.h"', 0)

    def test_libraries(self):
        self.check("merge/store.cc", "#include <lmdb.h>", 0)
        self.check("merge/dump.cc", "#include <lmdb.h>", 1)
        self.check("cli/x.cc", "#include <bpf/libbpf.h>", 1)
        self.check("kernel_probe/loader.cc", "#include <bpf/libbpf.h>", 0)
        self.check("bpf/sched.bpf.c", "#include <bpf/bpf_helpers.h>", 0)

    def test_analysis_is_pure(self):
        self.check("analysis/x.cc", "#include <chrono>", 1)
        self.check("analysis/x.cc", '#include "base/file.h"', 1)
        self.check("analysis/x.cc", '#include "base/text.h"', 0)
        self.check("analysis/x.cc", "  std::printf(text);", 1)
        self.check("analysis/x.cc", "  std::snprintf(text, 9, format);", 0)

    def test_licences(self):
        self.assertTrue(violations("base/x.h", "#pragma once\n"))
        self.assertTrue(violations("bpf/x.h", f"/* {LICENCE} */\n"))
        self.assertFalse(
            violations("x.py", f"#!/usr/bin/env python3\n# {LICENCE}\n"))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
