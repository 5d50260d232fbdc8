#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shim_instructions.sh BUILD_DIR: instructions per call, bare and through the
# shim, write-outs included: the difference of 200,000 and 100,000 calls, as
# callgrind counts them; "Range" is an NVTX push and pop. Independent of the machine's load. Needs valgrind.
set -eu
build=$1
dir=$(mktemp -d /dev/shm/ingero-instructions-XXXXXX)
trap 'rm -rf "$dir"' EXIT
count() {  # which calls
  # A preload of any kind, or none, is part of the comparison.
  case $1 in
    shim*) preload=$build/lib/libingero_cuda.so ;;
    *) preload= ;;
  esac
  NVTX_INJECTION64_PATH=$preload INGERO_DIR=$dir INGERO_APIS=cudnn LD_PRELOAD=$preload valgrind --tool=callgrind \
      --callgrind-out-file=/dev/null "$build/bench/shim_bench" --count "$1" \
      "$2" 2>&1 | sed -n 's/.*Collected : //p'
}
for which in bare5 shim5 bare11 shim11 bareNested shimNested shimLibrary bareRange \
    shimRange; do
  less=$(count $which 100000) more=$(count $which 200000)
  echo "$which $(((more - less) / 1000))" |
      awk '{ printf "%-10s %6.1f instructions per call\n", $1, $2 / 100 }'
done
