// SPDX-License-Identifier: Apache-2.0
// Any bytes as what perf script prints: read, and what could be read written as
// a kernel stream. Run for a minute with
//
//   build/tests/import/perf_fuzz -max_total_time=60 CORPUS
//
// Half of the inputs are the text itself (tests/import/perf is a corpus); of the
// others events are made, a few bytes for each, so that rows are written, too.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "import/sched.h"

namespace {

std::string Made(const uint8_t* data, size_t size) {
  static const char* const kStates[] = {"S", "R", "R+", "D", "I", "X", "Z", "t"};
  std::string text;
  uint64_t t = 1'000'000'000;
  for (size_t i = 0; i + 4 <= size && i < 1600; i += 4) {
    const unsigned kind = data[i] & 7, cpu = data[i] >> 3 & 3, a = data[i + 1] & 7,
                   b = data[i + 2] & 7, more = data[i + 3];
    t += more * 1000u;
    if (more == 255) t -= 5'000'000;
    char line[256];
    const int head = std::snprintf(
        line, sizeof(line), "c%u %u/%u [%03u] %llu.%09llu: ", a, a / 2, a, cpu,
        static_cast<unsigned long long>(t / 1'000'000'000),
        static_cast<unsigned long long>(t % 1'000'000'000));
    const auto rest = [&](const char* format, auto... values) {
      std::snprintf(line + head, sizeof(line) - static_cast<size_t>(head),
                    format, values...);
    };
    if (kind < 3)
      rest("sched:sched_switch: prev_comm=c%u prev_pid=%u prev_prio=1 "
           "prev_state=%s ==> next_comm=c%u next_pid=%u next_prio=1\n",
           a, a, kStates[data[i + 2] >> 3 & 7], b, b);
    else if (kind == 3)
      rest("sched:%s: comm=c%u pid=%u prio=1 target_cpu=001\n",
           data[i + 2] & 8    ? "sched_waking"
           : data[i + 2] & 16 ? "sched_wakeup"
                              : "sched_wakeup_new",
           b, b);
    else if (kind == 4)
      rest("PERF_RECORD_FORK(%u:%u):(%u:%u)\n", b / 2, b, a / 2, a);
    else if (kind == 5)
      rest("PERF_RECORD_LOST lost %u\n", more);
    else if (kind == 6)
      rest("sched:sched_process_exec: filename=/x/%u pid=%u old_pid=%u\n", more,
           b, data[i + 2] & 8 ? b : a);
    else
      rest("sched:sched_process_fork: comm=c%u pid=%u child_comm=c%u "
           "child_pid=%u\n", a, a, a, b);
    text += line;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingero::import;
  if (size < 4) return 0;
  static const int fd = memfd_create("trace", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  static const struct Folder {
    std::string path = "/tmp/ingero-perf-fuzz-XXXXXX";
    Folder() {
      if (mkdtemp(path.data()) == nullptr) path.clear();
    }
    ~Folder() {
      std::error_code ignored;
      if (!path.empty()) std::filesystem::remove_all(path, ignored);
    }
  } folder;
  const std::string text =
      data[0] & 1 ? Made(data + 1, size - 1)
                  : std::string(reinterpret_cast<const char*>(data), size);
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, text.data(), text.size(), 0) !=
          static_cast<ssize_t>(text.size()))
    return 0;
  auto events = ReadPerfSched(path, nullptr);
  if (!events.ok()) {
    if (events.status().message().find('\n') != std::string::npos) abort();
    return 0;
  }
  if (folder.path.empty()) return 0;
  std::error_code ignored;
  std::filesystem::remove(folder.path + "/kernel-1.ingero", ignored);
  auto written = WriteKernelStream(std::move(*events), {{3, 9}}, folder.path,
                                   nullptr);
  if (!written.ok() &&
      written.status().message().find('\n') != std::string::npos)
    abort();
  return 0;
}
