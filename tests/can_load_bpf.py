#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints why tests of the kernel side cannot run here, which load BPF programs
and compare the pids that those see with their own; nothing where they can."""

import ctypes
import os
import platform
import sys
import unittest


def reason():
    if os.geteuid() != 0:
        return "not root (sudo tests/run.sh runs them)"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "no /sys/kernel/btf/vmlinux (kernel without BTF, or no /sys)"
    number = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    if number is None:
        return f"bpf(2) is not known on {platform.machine()}"
    # BPF_MAP_CREATE of a one-element array: type, key, value, entries.
    attr = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, 0, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd < 0:
        return f"bpf(2): {os.strerror(ctypes.get_errno())}"
    os.close(fd)
    # The first pid namespace's number, PROC_PID_INIT_INO of the kernel's
    # include/linux/proc_ns.h: BPF programs see the pids of that one.
    namespace = "/proc/self/ns/pid"
    if os.path.exists(namespace) and os.stat(namespace).st_ino != 0xEFFFFFFC:
        return ("in a pid namespace of its own (a container) pids are not those "
                "of the kernel; docker run --pid=host has them")
    return ""


def run_tests(words, *live):
    """unittest with these arguments; the exit status of a skipped test where
    they name one of the classes `live`, which need BPF, and there is none."""
    if any(name in word for word in words for name in live):
        why = reason()
        if why:
            print("SKIP: " + why)
            sys.exit(77)
    unittest.main(argv=[sys.argv[0], *words], verbosity=2)


if __name__ == "__main__":
    why = reason()
    if why:
        print(why)
    sys.exit(1 if why else 0)
