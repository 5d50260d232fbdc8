#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs shim_bench's LttngUst with a session that records it: in memory, the
# oldest overwritten, so that no consumer is measured.
#   bench/shim_bench_lttng.sh BUILD       needs lttng-tools and liblttng-ust-dev
set -euo pipefail
build=$1
for tool in lttng lttng-sessiond; do
  command -v "$tool" >/dev/null || {
    echo "shim_bench_lttng: no $tool here; apt install lttng-tools liblttng-ust-dev" >&2
    exit 77
  }
done
LTTNG_HOME=$(mktemp -d /dev/shm/ingero-lttng.XXXXXX)
export LTTNG_HOME
session=ingero-bench-$$
trap 'lttng destroy "$session" >/dev/null 2>&1 || true; rm -rf "$LTTNG_HOME"' EXIT
lttng-sessiond --daemonize --no-kernel 2>/dev/null || true  # one may run
lttng create "$session" --snapshot --output="$LTTNG_HOME" >/dev/null
lttng enable-channel --userspace --overwrite --subbuf-size=1M --num-subbuf=4 calls >/dev/null
lttng enable-event --userspace --channel=calls 'ingero_bench:*' >/dev/null
lttng start >/dev/null
# Registering with the session may take longer than its usual three seconds.
LTTNG_UST_REGISTER_TIMEOUT=30000 "$build/bench/shim_bench" \
  --benchmark_filter='LttngUst|^Shim5' || exit
