#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything with warnings as errors, and runs
# all tests. Its last line is "N passed, N failed, N skipped"; the exit status
# is 0 only where something passed and nothing failed.
#
# Usage: tests/run.sh [ARGUMENTS]
#
#   arguments          go to ctest, as in: tests/run.sh -R layout
#   INGERO_BUILD_DIR   where to build; default build-tests/
#   CMAKE_BUILD_PARALLEL_LEVEL   so many compilers at a time; default: one a CPU
#                      and two more
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/stoppable.sh
. "$root/cmake/stoppable.sh"
case "${1-}" in -h | --help) print_usage; exit ;; esac
cd "$root"
build=${INGERO_BUILD_DIR:-$root/build-tests}

# What goes wrong before the tests counts as one failed test.
trap 'echo "tests/run.sh: no tests ran (see above)" >&2
echo "0 passed, 1 failed, 0 skipped"' ERR

"$root/cmake/setup.sh"
# Without them the tests that compare with CUDA's headers fail, and only those.
"$root/cmake/fetch_cuda_headers.sh" "$build/cuda_wheels" || true

launcher=()
if command -v ccache >/dev/null 2>&1; then
  launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
stoppable cmake -S "$root" -B "$build" -G Ninja -DINGERO_WERROR=ON \
  -DINGERO_BUILD_TESTS=ON -DINGERO_BUILD_BENCH=ON "${launcher[@]}"
stoppable cmake --build "$build" -- -k 0
trap - ERR

# Root tests load BPF programs. Where that cannot work they are left out and
# counted as skipped: asked of the kernel itself, not of our own programs,
# whose faults must fail.
why_no_root=$(python3 "$root/tests/can_load_bpf.py") || true
select=()
left_out=0
if [ -n "$why_no_root" ]; then
  select=(-LE '^root$')
  left_out=$(ctest --test-dir "$build" -N -L '^root$' "$@" |
    sed -n 's/^Total Tests: *//p')
fi

results=$build/test-results.xml
rm -f "$results"
# One after another: many measure time, and two cores are the least we support.
stoppable ctest --test-dir "$build" --output-on-failure --no-tests=ignore \
  --output-junit "$results" --test-output-size-passed 4000000 \
  --test-output-size-failed 4000000 "${select[@]}" "$@" || true

if [ "${left_out:-0}" -gt 0 ]; then
  echo "root tests: $left_out skipped: $why_no_root"
fi
exec python3 "$root/tests/summarize.py" "$results" "${left_out:-0}"
