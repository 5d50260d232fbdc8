// SPDX-License-Identifier: Apache-2.0
#include "base/stream_header.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>

#include "base/file.h"
#include "base/stream_check.h"
#include "base/task_stat.h"

namespace ingero {
namespace {

uint64_t Read(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

int64_t ReadMonotonicOffset() {
  auto text = ReadWholeFile("/proc/self/timens_offsets");
  if (!text.ok()) return 0;
  std::istringstream in(*text);
  std::string clock;
  int64_t s, ns;
  while (in >> clock >> s >> ns)
    if (clock == "monotonic") return s * 1'000'000'000 + ns;
  return 0;
}

// Zeros where there is none.
void ReadBootId(uint8_t (&boot_id)[16]) {
  std::fill(std::begin(boot_id), std::end(boot_id), uint8_t{0});
  auto text = ReadWholeFile("/proc/sys/kernel/random/boot_id");
  if (!text.ok()) return;
  size_t nibble = 0;
  for (char c : *text) {
    int v;
    if (c >= '0' && c <= '9') v = c - '0';
    else if (c >= 'a' && c <= 'f') v = c - 'a' + 10;
    else continue;
    if (nibble >= 32) break;
    boot_id[nibble / 2] =
        static_cast<uint8_t>(boot_id[nibble / 2] << 4 | v);
    ++nibble;
  }
}

}  // namespace

int64_t MonotonicOffsetNs() {
  static const int64_t offset = ReadMonotonicOffset();
  return offset;
}

uint64_t HostNowNs() {
  return Read(CLOCK_MONOTONIC) - static_cast<uint64_t>(MonotonicOffsetNs());
}

ingero_stream_header MakeStreamHeader(uint64_t magic, const char* comm) {
  ingero_stream_header h{};
  h.magic = magic;
  h.major = INGERO_WIRE_MAJOR;
  h.minor = INGERO_WIRE_MINOR;
  h.header_bytes = INGERO_HEADER_BYTES;
  h.clock = INGERO_CLOCK_MONOTONIC;
  while (h.stream_id == 0)
    if (getrandom(&h.stream_id, sizeof(h.stream_id), 0) < 0)
      h.stream_id = HostNowNs() ^ static_cast<uint64_t>(getpid()) << 40;
  ReadBootId(h.boot_id);
  h.monotonic_offset_ns = MonotonicOffsetNs();
  h.created_mono_ns =
      HostNowNs() + static_cast<uint64_t>(h.monotonic_offset_ns);
  h.created_real_ns = Read(CLOCK_REALTIME);
  h.pid = static_cast<uint32_t>(getpid());
  h.parent_pid = static_cast<uint32_t>(getppid());
  h.uid = getuid();
  h.clock_ticks_per_s = static_cast<uint32_t>(sysconf(_SC_CLK_TCK));
  if (auto own = ReadTaskStat(h.pid)) h.start_clock_ticks = own->start_ticks;
  struct stat st;
  if (stat("/proc/self/ns/pid", &st) == 0) h.pid_namespace = st.st_ino;
  std::snprintf(h.comm, sizeof(h.comm), "%s", comm);
  gethostname(h.host, sizeof(h.host) - 1);
  std::snprintf(h.tool_version, sizeof(h.tool_version), "%s", INGERO_VERSION);
  SealStreamHeader(&h);
  return h;
}

}  // namespace ingero
