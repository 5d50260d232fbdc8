#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole way once: installs what is missing, builds, records a starving
# workload from both sides, merges and explains. No GPU needed: without one the
# workload runs on simulated CUDA; with a GPU and PyTorch it is benchmark.py.
# Recordings go to a folder of the demo's own, never to yours.
#
# Usage: examples/demo.sh [ARGUMENTS]
#
#   arguments           go to the workload
#   INGERO_DEMO_BUILD   where to build; default build-demo/
#   INGERO_DEMO_DIR     where to record; default a new folder under /tmp
#   CMAKE_BUILD_PARALLEL_LEVEL   so many compilers at a time; default: one a CPU
#                       and two more
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/stoppable.sh
. "$root/cmake/stoppable.sh"
case "${1-}" in -h | --help) print_usage; exit ;; esac
cd "$root"
build=${INGERO_DEMO_BUILD:-$root/build-demo}

say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }

say "1. Install what is missing, build into ${build#"$root"/}"
"$root/cmake/setup.sh"
log=$(mktemp)
stoppable_log=$log
build_it() {
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DINGERO_BUILD_TESTS=OFF -DINGERO_BUILD_BENCH=OFF &&
    cmake --build "$build"
}
start_stoppable build_it >"$log" 2>&1
# Minutes on a small machine: what it is at, every half minute.
for ((second = 1; ; ++second)); do
  sleep 1
  kill -0 "$stoppable_group" 2>/dev/null || break
  if ((second % 30 == 0)); then
    # What a line shows last, where it was written over.
    printf '   %d s: %.70s\n' "$second" \
      "$(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | tr -cd '[:print:]')"
  fi
done
stoppable_log=
if ! wait_for_stoppable; then
  tail -n 30 "$log" >&2
  echo "demo: the build failed; all of its output is in $log" >&2
  exit 1
fi
grep -- '-- Left out' "$log" || true
rm -f "$log"
# From here on the commands are those of an installed ingero.
# shellcheck source=/dev/null
. "$build/env.sh"

INGERO_DIR=${INGERO_DEMO_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/ingero-demo.XXXXXX")}
mkdir -p "$INGERO_DIR"
export INGERO_DIR INGERO_DIR_ONLY=1

if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 &&
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
    2>/dev/null; then
  workload=(python3 "$root/examples/benchmark.py")
  say "2. Record examples/benchmark.py on this machine's GPU, and explain"
else
  workload=(starved_loader)
  say "2. Record examples/starved_loader.cc (no GPU and PyTorch here:" \
    "simulated CUDA), and explain"
fi
show "ingero run ${workload[*]} $*"
status=0
ingero run "${workload[@]}" "$@" || status=$?
if [ "$status" != 0 ]; then
  echo "demo: the workload failed with exit status $status" >&2
  exit 1
fi

say "3. The same, process by process"
show "ingero explain --per-process"
ingero explain --per-process

say "The recording is in $INGERO_DIR"
cat <<END
Next, in this shell or another:
  . $build/env.sh
  export INGERO_DIR=$INGERO_DIR
  ingero explain --since 1s        only the end of it
  ingero explain --json            for programs
  ingero list                      what has been recorded
  ingero demo --list               other causes, planted one at a time
For a program of your own, without INGERO_DIR:
  ingero run python3 your_program.py
END
