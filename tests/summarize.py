#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""summarize.py RESULTS.xml [LEFT_OUT]: what ctest's JUnit file says, in one
line. A GoogleTest binary counts by its cases, so that a skipped case inside a
passing binary shows; any other test counts as one. LEFT_OUT more were skipped
before ctest ran."""

import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.M)
FAILED = re.compile(r"^ ?(\d+) FAILED TESTS?$", re.M)
SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below:", re.M)
COUNTS = re.compile(r"\d+ passed, \d+ failed, \d+ skipped")
SKIP_REASON = re.compile(r"^\S+: Skipped\n(.+)\n", re.M)


def number(pattern, text):
    match = pattern.search(text)
    return int(match.group(1)) if match else 0


def count(case):
    """(passed, failed, skipped, reasons) of one ctest test."""
    output = (case.findtext("system-out") or "").replace("\r", "")
    status = case.get("status")
    if status == "run":
        if "[==========]" not in output:
            return 1, 0, 0, []
        passed, skipped = number(PASSED, output), number(SKIPPED, output)
        if passed + skipped == 0:
            return 0, 1, 0, []  # a binary that ran no case tests nothing
        return passed, 0, skipped, SKIP_REASON.findall(output)
    if status == "fail":
        # A crash prints no count.
        return (number(PASSED, output), max(1, number(FAILED, output)),
                number(SKIPPED, output), [])
    if status in ("notrun", "disabled"):
        element = case.find("skipped")
        message = element.get("message", "") if element is not None else ""
        # ctest reports a missing binary as "not run" too: that is a failure.
        if status == "notrun" and "SKIP" not in message:
            return 0, 1, 0, []
        # The last line says why; that of some is a count, as our own is.
        lines = [line for line in output.splitlines()
                 if line.strip() and not COUNTS.fullmatch(line)]
        return 0, 0, 1, lines[-1:] or [message]
    return 0, 1, 0, []


def main(path, left_out):
    try:
        cases = ElementTree.parse(path).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"tests: no results: {error}", file=sys.stderr)
        cases = []
    passed = failed = 0
    skipped = left_out
    for case in cases:
        p, f, s, reasons = count(case)
        passed, failed, skipped = passed + p, failed + f, skipped + s
        if f:
            print(f"failed: {case.get('name')}")
        for reason in dict.fromkeys(reasons):
            print(f"skipped: {case.get('name')}: {reason.strip()}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
