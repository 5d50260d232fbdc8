#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches CUDA's headers and runtime libraries (pip's wheels, 10 MB) for the
# test that compares preload/cuda_api.def with them. First and last of each
# major: names have only been added within one (checked over 12.0, 12.1, 12.2,
# 12.3, 12.4, 12.5, 12.6, 12.8, 12.9 and 13.0 to 13.5).
#
#   cmake/fetch_cuda_headers.sh FOLDER   what is missing there, and only that
#   cmake/fetch_cuda_headers.sh --list   what it would fetch
set -euo pipefail

wheels=(
  nvidia-cuda-runtime-cu11==11.8.89
  nvidia-cuda-runtime-cu12==12.0.146
  nvidia-cuda-runtime-cu12==12.9.79
  nvidia-cuda-runtime==13.0.96
  nvidia-cuda-runtime==13.5.37
  nvidia-cuda-crt==13.5.37  # headers that those above include
)

if [ $# != 1 ]; then
  echo "usage: cmake/fetch_cuda_headers.sh FOLDER | --list" >&2
  exit 2
fi
if [ "$1" = --list ]; then
  printf '%s\n' "${wheels[@]}"
  exit 0
fi
mkdir -p "$1"
for wheel in "${wheels[@]}"; do
  name=${wheel%%==*}
  compgen -G "$1/${name//-/_}-${wheel##*==}-*.whl" >/dev/null && continue
  for attempt in 1 2 3; do
    [ "$attempt" = 1 ] || sleep "$((attempt * 5))"
    # To another folder first: a torn download must not look like a wheel.
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --only-binary :all: --dest "$1/partial" "$wheel" </dev/null; then
      mv "$1"/partial/*.whl "$1"
      continue 2
    fi
  done
  echo "fetch_cuda_headers: pip could not download $wheel (above); a test" \
    "needs it" >&2
  exit 1
done
rm -rf "$1/partial"
