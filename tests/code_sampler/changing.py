# SPDX-License-Identifier: Apache-2.0
"""A program whose frames change as fast as they can, for
python_process_test.py. Prints "lines", then each (file, function, line) that
it can ever be at, then "ready"; ends with its standard input.

Made code has its number in its name and in its lines: the function made_N has
lines 1000 N + 1 to 1000 N + 4 only.
"""

import os
import sys
import threading

MADE = """
def made_{n}(x):
    for y in range(20):
        x = x + y
    return x
"""

# Of an installed package, so that its caller is looked for.
PACKAGE_FILE = "/opt/site-packages/package.py"
PACKAGE = """
def down(n):
    return 1 if n == 0 else down(n - 1) + 1


def package(n):
    return [down(n) for _ in range(40)]
"""


def numbers(n):
    for i in range(n):
        yield i
        yield i * i


def leaf(x):
    return x + 1


def deep(n):
    if n == 0:
        return leaf(1)
    return deep(n - 1) + leaf(n)


class Thing:
    def method(self):
        return sum(numbers(20)) + sum(x for x in range(10))

    @property
    def value(self):
        return [leaf(i) for i in range(5)]


def of_package(package):
    return package(7) + package(3)


def make(n):
    names = {}
    source = "\n" * (1000 * n - 1) + MADE.format(n=n)
    exec(compile(source, "<string>", "exec"), names)
    names[f"made_{n}"](n)


def work(stop):
    thing = Thing()
    n = 0
    names = {}
    exec(compile(PACKAGE, PACKAGE_FILE, "exec"), names)
    while not stop.is_set():
        deep(30)
        thing.method()
        thing.value
        n = n % 40 + 1
        make(n)
        of_package(names["package"])


def codes(code, file):
    if code.co_filename == file:
        yield code
        for constant in code.co_consts:
            if hasattr(constant, "co_code"):
                yield from codes(constant, file)


def main():
    with open(__file__, encoding="utf-8") as source:
        top = compile(source.read(), __file__, "exec")
    print("lines")
    for code in codes(top, __file__):
        lines = {line for _, _, line in code.co_lines()} | {0}
        for line in lines - {None}:
            print(code.co_filename, code.co_qualname, line, sep="\t")
    print("ready", flush=True)
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,), daemon=True)
               for _ in range(3)]
    for thread in threads:
        thread.start()
    if len(sys.argv) > 1:  # from a child of a fork
        child = os.fork()
        if child == 0:
            print("child", os.getpid(), flush=True)
            work(stop)
        sys.stdin.read()
        os.kill(child, 9)
        os.waitpid(child, 0)
    else:
        sys.stdin.read()
    os._exit(0)


main()
