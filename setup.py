# SPDX-License-Identifier: Apache-2.0
"""Puts the native programs into the wheel (ingero/_native).

INGERO_BUILD_DIR: take them from this build folder instead of building anew.
"""
import os
import pathlib
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent


class BuildWithPrograms(build_py):
    def run(self):
        super().run()
        build = os.environ.get("INGERO_BUILD_DIR")
        if not build:
            build = HERE / "build-wheel"
            subprocess.check_call(
                ["cmake", "-S", HERE, "-B", build, "-G", "Ninja",
                 "-DINGERO_BUILD_TESTS=OFF", "-DINGERO_BUILD_BENCH=OFF",
                 "-DCMAKE_INSTALL_LIBDIR=lib"])
            subprocess.check_call(["cmake", "--build", build])
        native = pathlib.Path(self.build_lib).resolve() / "ingero" / "_native"
        subprocess.check_call(["cmake", "--install", build, "--strip",
                               "--prefix", native])


class WithPrograms(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=WithPrograms,
      cmdclass={"build_py": BuildWithPrograms, "bdist_wheel": AnyPython})
