#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user installs: the Debian package (cpack), the wheel, and in them man
pages, completion, unit and programs that run where they were put.

  package_test.py --build BUILD_FOLDER [--cpack CPACK]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def run(*command, **kw):
    return subprocess.run([str(c) for c in command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **kw)


class PackageTest(unittest.TestCase):
    def folder(self):
        path = pathlib.Path(tempfile.mkdtemp(prefix="ingero-package-"))
        self.addCleanup(shutil.rmtree, path)
        return path

    def commands(self, ingero):
        text = run(ingero, "--help").stdout
        part = text.split("Commands:\n")[1].split("\n\n")[0]
        return [line.split()[0] for line in part.splitlines()]

    def demo(self, out, *ingero, **kw):
        """It runs where it was put, on its own simulated CUDA."""
        if len(os.sched_getaffinity(0)) < 2:
            return  # it says so, and does not run
        done = run(*ingero, "demo", "--cuda-only", "healthy", "--dir",
                   out / "demo", **kw)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Planted and found", done.stdout)

    def test_debian_package(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("no dpkg-deb here")
        out = self.folder()
        done = run(OPTIONS.cpack, "-G", "DEB", "-B", out,
                   "-D", "CPACK_PACKAGING_INSTALL_PREFIX=/usr",
                   cwd=OPTIONS.build)
        self.assertEqual(done.returncode, 0, done.stdout)
        (package,) = out.glob("*.deb")
        self.assertEqual(
            run("dpkg-deb", "-x", package, out / "tree").returncode, 0)
        tree = out / "tree/usr"
        ingero = tree / "bin/ingero"
        self.assertEqual(run(ingero, "version").stdout[:7], "ingero ")
        for name in ("libingero_cuda.so", "libingero_check.so"):
            self.assertEqual(len(list(tree.glob(f"lib*/**/{name}"))), 1, name)
        self.demo(out, ingero)
        if (tree / "bin/ingero-kprobe").exists():
            unit = (tree / "lib/systemd/system/ingero-kprobe.service").read_text()
            self.assertIn("\nExecStart=/usr/bin/ingero-kprobe ", unit)
            self.assertTrue((tree / "share/man/man8/ingero-kprobe.8.gz").exists())
        for command in self.commands(ingero):
            if command not in ("help", "version"):
                page = tree / f"share/man/man1/ingero-{command}.1.gz"
                self.assertTrue(page.exists(), page)
        if shutil.which("lintian"):
            done = run("lintian", "--allow-root", package)
            left = [x for x in done.stdout.splitlines()
                    if re.match("[EW]: ", x)]
            self.assertEqual(left, [])

    def test_man_pages(self):
        pages = sorted((OPTIONS.build / "share/man").glob("man?/*"))
        self.assertGreater(len(pages), 10)
        names = {p.name for p in pages}
        for page in pages:
            text = page.read_text()
            for part in (".TH", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"):
                if part != ".SH OPTIONS" or page.name != "ingero.1":
                    self.assertIn(part, text, page)
            if shutil.which("man"):
                done = run("man", "--warnings", "-l", page,
                           env={"MANROFFSEQ": "", "LC_ALL": "C.UTF-8",
                                "MANWIDTH": "80", "PATH": "/usr/bin:/bin"})
                self.assertNotIn("warning", done.stdout, page)
        top = (OPTIONS.build / "share/man/man1/ingero.1").read_text()
        self.assertIn(".SH OVERHEAD", top)
        for command in self.commands(OPTIONS.build / "bin/ingero"):
            if command not in ("help", "version"):
                self.assertIn(f"ingero-{command}.1", names)

    def complete(self, *words):
        script = OPTIONS.build / "share/bash-completion/completions/ingero"
        done = run("bash", "-c", '. "$1"; shift; COMP_WORDS=("$@"); '
                   'COMP_CWORD=$(($# - 1)); _ingero; '
                   'printf "%s\\n" "${COMPREPLY[@]}"', "bash", script, *words)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("ingero", "expl"), ["explain"])
        self.assertEqual(self.complete("ingero", "merge", "--fo"), ["--follow"])
        self.assertIn("--per-process",
                      self.complete("ingero", "explain", "--per"))
        # Words that a command takes: scenarios, and commands.
        scenarios = [line.split()[0] for line in run(
            OPTIONS.build / "bin/ingero", "demo", "--list").stdout.splitlines()]
        self.assertGreater(len(scenarios), 5)
        self.assertEqual(
            [w for w in self.complete("ingero", "demo", "")
             if not w.startswith("-")], scenarios)
        self.assertEqual(self.complete("ingero", "demo", "lock"),
                         ["lock-held"])
        self.assertEqual(self.complete("ingero", "help", "ru"), ["run"])
        self.assertIn(f"{SOURCE}/README.md",
                      self.complete("ingero", "explain", "--db",
                                    f"{SOURCE}/READ"))
        folder = OPTIONS.build / "share"
        for shell, path in (("zsh", "zsh/site-functions/_ingero"),
                            ("fish", "fish/vendor_completions.d/ingero.fish")):
            text = (folder / path).read_text()
            for command in self.commands(OPTIONS.build / "bin/ingero"):
                self.assertIn(command, text, shell)
            for scenario in scenarios:
                self.assertIn(scenario, text, shell)
            if shutil.which(shell):
                done = run(shell, "-n", folder / path)
                self.assertEqual((done.returncode, done.stdout), (0, ""), shell)

    def test_wheel(self):
        out = self.folder()
        done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet",
                   "--disable-pip-version-check", "-w", out, SOURCE,
                   env={"INGERO_BUILD_DIR": str(OPTIONS.build),
                        "PATH": "/usr/local/bin:/usr/bin:/bin",
                        "HOME": str(out)} | OPTIONS.pip)
        if done.returncode and "setuptools" in done.stdout:
            self.skipTest("pip could not get setuptools: "
                          + done.stdout.strip()[-200:])
        self.assertEqual(done.returncode, 0, done.stdout)
        (wheel,) = out.glob("ingero-*-py3-none-*.whl")
        done = run(sys.executable, "-m", "zipfile", "-e", wheel, out / "w")
        self.assertEqual(done.returncode, 0, done.stdout)
        native = out / "w/ingero/_native"
        for program in (*native.glob("bin/*"),
                        *native.glob("lib*/**/ingero/demo/starve_sim")):
            program.chmod(0o755)  # as pip does; zipfile does not
        env = {"PYTHONPATH": str(out / "w"), "PATH": "/usr/bin:/bin"}
        done = run(sys.executable, "-m", "ingero", "version", env=env)
        self.assertEqual(done.stdout[:7], "ingero ", done.stdout)
        done = run(sys.executable, "-m", "ingero", "shim", env=env)
        self.assertTrue(pathlib.Path(done.stdout.strip()).exists(), done.stdout)
        self.demo(out, sys.executable, "-m", "ingero", env=env)
        sys.path.insert(0, str(out / "w"))
        from ingero.__main__ import _with_this_python
        here = sys.executable
        for given, want in (
                (["train.py", "-x"], ["--", here, "train.py", "-x"]),
                (["--quiet", "--", "a.py"], ["--quiet", "--", here, "a.py"]),
                (["--", "./job", "a.py"], ["--", "./job", "a.py"])):
            self.assertEqual(_with_this_python(given), want)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cpack", default="cpack")
    OPTIONS, rest = parser.parse_known_args()
    # How pip reaches its index here.
    OPTIONS.pip = {k: v for k, v in os.environ.items()
                   if k.lower().endswith("_proxy") or k.startswith("PIP_")
                   or k in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")}
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
