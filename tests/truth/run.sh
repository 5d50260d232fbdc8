#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/truth/run.sh [--short] [--cases a,b]...: the truth suite on the tree in
# $INGERO_BUILD_DIR (default: build-tests/, as tests/run.sh builds it).
set -eu
cd "$(dirname "$0")/../.."
build=${INGERO_BUILD_DIR:-build-tests}
if ! [ -x "$build/bin/starve_sim" ]; then
  echo "truth: $build/bin/starve_sim is not built; run tests/run.sh once" >&2
  exit 1
fi
exec python3 tests/truth/run.py --build "$build" "$@"
