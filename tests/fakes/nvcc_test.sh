#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvcc_test.sh FAKE_DIR SOURCE WORK_DIR: builds SOURCE with nvcc against the
# shared runtime, for both kinds of default stream, and runs it on the
# simulated one.
set -eu
fakes=$1 source=$2 work=$3
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if ! [ -x "$nvcc" ]; then
  echo "SKIP: nvcc is not installed"
  exit 77
fi
for kind in legacy per-thread; do
  "$nvcc" -cudart shared -default-stream $kind -o "$work/nvcc_client_$kind" \
      "$source"
  LD_LIBRARY_PATH=$fakes "$work/nvcc_client_$kind"
  echo "nvcc program with $kind default stream: ok"
done
