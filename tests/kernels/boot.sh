#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh BUILD_DIR KERNEL...: boots each kernel (a Debian package with it, or a
# vmlinuz) in qemu, with nothing but an initramfs of ours, records the simulator
# with both collectors there, merges and explains, and says which probes were
# attached and whether the planted cause was named. Needs qemu-system-x86_64
# and a static busybox. INGERO_QEMU_ACCEL=kvm is quicker where it works.
#
# A kernel before 5.15 must be refused with one line. Exit status 1 if any kernel
# did otherwise than it must. See README.md for where kernels come from.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: tests/kernels/boot.sh BUILD_DIR KERNEL..." >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
shift
for tool in qemu-system-x86_64 busybox cpio; do
  if ! command -v $tool >/dev/null; then
    echo "boot.sh: $tool is missing (Debian: qemu-system-x86, busybox-static," \
      "cpio)" >&2
    exit 1
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir -p "$root"/{bin,lib,proc,sys,dev,tmp,rec,fake}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/guest_init" "$root/init"
chmod +x "$root/init"
cp "$build"/bin/{ingero,ingero-kprobe,starve_sim} "$root/bin/"
cp "$build"/lib/libingero_cuda.so "$root/lib/"
cp -L "$build"/lib/fake_cuda/*.so.* "$root/fake/"
# Each library where the loader looks for it without a cache.
for file in "$root"/bin/{ingero,ingero-kprobe,starve_sim}; do
  LD_LIBRARY_PATH=$build/lib/fake_cuda ldd "$file"
done | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | sort -u |
  while read -r library; do
    case $library in
      "$build"/*) ;;
      */ld-linux*)
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
        ;;
      *) cp -L "$library" "$root/lib/" ;;
    esac
  done
strip "$root"/bin/ingero* "$root"/bin/starve_sim
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initramfs"

# Not KVM by itself: where virtual machines nest badly it hangs before a word.
accel=${INGERO_QEMU_ACCEL:-tcg}
bad=0
for kernel; do
  image=$kernel
  if [[ $kernel == *.deb ]]; then
    rm -rf "$work/deb"
    dpkg-deb -x "$kernel" "$work/deb"
    image=$(echo "$work"/deb/boot/vmlinuz-*)
  fi
  log=$work/log
  timeout ${INGERO_QEMU_SECONDS:-300} qemu-system-x86_64 -machine accel=$accel -cpu max -smp 2 -m 2048 \
    -nodefaults -display none -serial stdio -no-reboot -kernel "$image" \
    -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 rdinit=/init" </dev/null \
    >"$log" 2>&1 || true
  tr -d '\r' <"$log" >"$log.text"
  release=$(sed -n 's/^guest: kernel //p' "$log.text")
  result=$(sed -n 's/^guest: result //p' "$log.text")
  echo "== ${release:-$(basename "$kernel")}: ${result:-did not come up}"
  sed -n 's/^guest: //p' "$log.text" | sed '/^kernel/d; /^result/d; s/^/  /'
  case $result in
    recorded* | refused*) ;;
    *)
      bad=1
      tail -n 15 "$log.text" | sed 's/^/  | /'
      ;;
  esac
done
exit $bad
