// SPDX-License-Identifier: Apache-2.0
// Looks at a Python process and prints what it sees, for python_process_test.py:
// look_print PID LOOKS MICROSECONDS [SEED]. A line a sample: tid, file, line,
// function, then the innermost one's file, line, function; at the end the
// counts. With a seed, some of what is read is damaged first.
// look_print layout MINOR: the offsets of Python 3.MINOR.
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "base/file.h"
#include "code_sampler/python_process.h"

using namespace ingero;                // NOLINT
using namespace ingero::code_sampler;  // NOLINT

namespace {

class DamagedMemory : public Memory {
 public:
  DamagedMemory(pid_t pid, unsigned seed) : memory_(pid), random_(seed) {}
  using Memory::Read;
  Outcome Read(std::span<const Piece> pieces) override {
    const Outcome outcome = memory_.Read(pieces);
    if (!on || random_() % 16 != 0) return outcome;
    const Piece& p = pieces[random_() % pieces.size()];
    char* bytes = static_cast<char*>(p.to);
    switch (random_() % 4) {
      case 0:  // a bit
        bytes[random_() % p.bytes] ^= static_cast<char>(1u << random_() % 8);
        break;
      case 1:  // a word that belongs elsewhere
        if (p.bytes >= 8)
          std::memmove(bytes, bytes + random_() % (p.bytes / 8) * 8, 8);
        break;
      case 2:  // all of it
        for (size_t i = 0; i < p.bytes; ++i)
          bytes[i] = static_cast<char>(random_());
        break;
      case 3:
        return Outcome::kNotThere;
    }
    return outcome;
  }
  bool on = false;

 private:
  ProcessMemory memory_;
  std::mt19937 random_;
};

int PrintLayout(unsigned minor) {
  const auto layout = KnownLayout(0x03000000 | minor << 16);
  if (!layout) return 1;
#define X(name) std::printf("%s %u\n", #name, unsigned{layout->name});
  INGERO_PYTHON_OFFSETS(X)
#undef X
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return PrintLayout(static_cast<unsigned>(std::atoi(argv[2])));
  if (argc != 4 && argc != 5) return 2;
  const std::string proc = std::string("/proc/") + argv[1];
  DamagedMemory memory(std::atoi(argv[1]),
                       argc == 5 ? static_cast<unsigned>(std::atoi(argv[4])) : 0);
  auto maps = ReadWholeFile(proc + "/maps");
  char exe[4096] = {};
  if (!maps.ok() || readlink((proc + "/exe").c_str(), exe, sizeof(exe) - 1) < 0)
    return 1;
  OpenPython open = PythonProcess::Open(&memory, *maps, exe);
  if (open.process == nullptr) {
    std::printf("no\t%s\n", open.problem.c_str());
    return 0;
  }
  memory.on = argc == 5;
  Places places;
  LookCounts counts;
  std::vector<ThreadPlace> out;
  const timespec pause{0, std::atol(argv[3]) * 1000};
  timespec cpu_before, cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
  for (long look = std::atol(argv[2]); look > 0; --look) {
    if (open.process->Look(&places, &out, &counts) != Outcome::kRead &&
        !memory.on)
      break;
    nanosleep(&pause, nullptr);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  for (const ThreadPlace& t : out) {
    const Place &p = places.at(t.place), &i = places.at(t.innermost);
    std::printf("at\t%u\t%s\t%u\t%s\t%s\t%u\t%s\n", t.tid, p.file.c_str(),
                p.line, p.function.c_str(), i.file.c_str(), i.line,
                i.function.c_str());
  }
  const int64_t cpu_ns = (cpu.tv_sec - cpu_before.tv_sec) * 1'000'000'000 +
                         cpu.tv_nsec - cpu_before.tv_nsec;
  std::printf("counts\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\n",
              counts.threads, counts.dropped, counts.partial, cpu_ns);
  return 0;
}
