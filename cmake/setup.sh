#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing ingero needs, and only what is missing, on
# Debian 12/13 and Ubuntu 22.04/24.04. Needs root or sudo only where something
# is missing; with nothing missing it touches neither apt nor the network.
#
#   cmake/setup.sh           install what is missing
#   cmake/setup.sh --check   say what is missing; exit status 1 if anything is
set -euo pipefail

# command -> package: a tool counts wherever it comes from.
tools=(
  cmake:cmake
  ninja:ninja-build
  g++:g++
  pkg-config:pkg-config
  python3:python3
  pip3:python3-pip        # fetches CUDA's headers for a test
  clang:clang             # compiles bpf/; without it no ingero-kprobe
  ps:procps               # used by tests and the demo
  file:file               # with the next one: for cpack -G DEB
  dpkg-shlibdeps:dpkg-dev
  setpriv:util-linux
  taskset:util-linux
)
# Libraries: the same names in all four distributions.
packages=(
  ca-certificates
  libbenchmark-dev
  libbpf-dev
  libelf-dev
  libcli11-dev
  libconcurrentqueue-dev
  libcpp-httplib-dev
  libfmt-dev
  libgmock-dev
  libgtest-dev
  liblmdb-dev
  libsqlite3-dev
  libzstd-dev
  nlohmann-json3-dev
  zlib1g-dev
)

missing=()
for pair in "${tools[@]}"; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
done
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = \
    installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if [ "${1:-}" = --check ]; then
  echo "setup: missing: ${missing[*]}" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: missing: ${missing[*]} (Debian names); there is no apt-get" \
    "here, so install them by hand" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "setup: missing: ${missing[*]}; run cmake/setup.sh as root" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
  -o Dpkg::Use-Pty=0 -o Acquire::Retries=3)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update &&
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
  </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get failed (above); fix that and run cmake/setup.sh" \
    "again" >&2
  exit 1
fi
