# SPDX-License-Identifier: Apache-2.0
"""The programs of the wheel: `ingero`, `ingero-kprobe`, `python -m ingero`.

`python -m ingero run train.py` runs the script with this Python.
`python -m ingero shim` prints the library to preload.
"""
import os
import sys

NATIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")


def _execute(program, arguments):
    path = os.path.join(NATIVE, "bin", program)
    try:
        os.execv(path, [program, *arguments])
    except OSError as e:
        sys.exit(f"{program}: cannot run {path}: {e.strerror}; install ingero "
                 "again (pip install --force-reinstall ingero)")


def _with_this_python(arguments):
    """`run [OPTIONS] [--] train.py ...`: a script is run by this Python."""
    for i, word in enumerate(arguments):
        if word.endswith(".py") and (i == 0 or arguments[i - 1] == "--" or
                                     all(w.startswith("-")
                                         for w in arguments[:i])):
            options = [w for w in arguments[:i] if w != "--"]
            return [*options, "--", sys.executable, *arguments[i:]]
        if not word.startswith("-"):
            break
    return arguments


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["shim"]:
        for folder in ("lib", "lib64", "lib/x86_64-linux-gnu"):
            path = os.path.join(NATIVE, folder, "libingero_cuda.so")
            if os.path.exists(path):
                print(path)
                return
        sys.exit("ingero: this wheel has no libingero_cuda.so")
    if arguments[:1] == ["run"]:
        arguments = ["run", *_with_this_python(arguments[1:])]
    _execute("ingero", arguments)


def kprobe():
    _execute("ingero-kprobe", sys.argv[1:])


if __name__ == "__main__":
    main()
