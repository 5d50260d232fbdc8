# SPDX-License-Identifier: Apache-2.0
"""Programs of the build where any user reaches them: a checkout in root's home,
or one made under a strict umask, keeps out nobody, as whom some tests run."""
import os
import shutil
import tempfile


def copy(test, ingero):
    """ingero and what lies beside it, for as long as `test` runs; the folder
    with bin/ and lib/ of it."""
    folder = tempfile.mkdtemp(prefix="ingero-reachable-", dir="/var/tmp")
    test.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    beside = os.path.dirname(os.path.abspath(ingero))
    lib = os.path.join(beside, "..", "lib")
    for source, to in ((os.path.join(beside, "ingero"), "bin"),
                       (os.path.join(beside, "ingero-kprobe"), "bin"),
                       (os.path.join(beside, "starved_loader"), "bin"),
                       (os.path.join(lib, "libingero_cuda.so"), "lib"),
                       (os.path.join(lib, "libingero_check.so"), "lib"),
                       (os.path.join(lib, "fake_cuda"), "lib")):
        to = os.path.join(folder, to, os.path.basename(source))
        if os.path.isdir(source):
            shutil.copytree(source, to)
        elif os.path.exists(source):  # no ingero-kprobe without clang
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(source, to)
    for path, _, files in os.walk(folder):
        for name in (path, *(os.path.join(path, f) for f in files)):
            os.chmod(name, 0o755)
    return folder
