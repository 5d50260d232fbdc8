# SPDX-License-Identifier: Apache-2.0
"""What the tests of cuda_api.def against CUDA's headers share: the wheels that
cmake/fetch_cuda_headers.sh fetches, as --wheels names them, and what their
headers declare."""
import argparse
import concurrent.futures
import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, os.path.join(ROOT, "preload"))
import gen_cuda_api as gen  # noqa: E402

TABLE = os.path.join(ROOT, "preload/cuda_api.def")
OPTIONS = argparse.Namespace()


class WheelsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.wheels = gen.Wheels(OPTIONS.wheels, scratch.name)
        with concurrent.futures.ThreadPoolExecutor(
                len(os.sched_getaffinity(0))) as pool:
            cls.declared = list(pool.map(
                lambda s: cls.wheels.declared(s[2]), cls.wheels.sets))
        cls.table = gen.read_rows(TABLE)[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheels", required=True)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
