// SPDX-License-Identifier: Apache-2.0
// Puts the uprobe and uretprobe of shim_bench.bpf.c on functions of a running
// process, and empties their ring every 10 ms:
//
//   uprobe_tool OBJECT PID LIBRARY FUNCTION...
//
// Says "ready N" (functions found; two names of one function count once), and
// when its standard input ends "records N". Needs root.
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <vector>

#include "bench/file_offset.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "uprobe_tool: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return Fail("usage: uprobe_tool OBJECT PID LIBRARY FUNCTION...");
  libbpf_set_print([](libbpf_print_level, const char*, va_list) { return 0; });
  void* library = dlopen(argv[3], RTLD_LAZY);
  if (library == nullptr) return Fail(dlerror());
  bpf_object* object = bpf_object__open_file(argv[1], nullptr);
  if (object == nullptr || bpf_object__load(object) != 0)
    return Fail("cannot load its BPF programs; it needs root");

  std::set<size_t> offsets;
  for (int i = 4; i < argc; ++i)
    if (void* function = dlsym(library, argv[i]))
      if (const auto where = FileOffset(function))
        offsets.insert(where->second);
  std::vector<bpf_link*> links;
  for (const size_t offset : offsets) {
    for (const char* name : {"enter", "leave"}) {
      links.push_back(bpf_program__attach_uprobe(
          bpf_object__find_program_by_name(object, name), name[0] == 'l',
          std::atoi(argv[2]), argv[3], offset));
      if (links.back() == nullptr) return Fail("cannot attach a uprobe");
    }
  }
  uint64_t records = 0;
  ring_buffer* ring = ring_buffer__new(
      bpf_object__find_map_fd_by_name(object, "ring"),
      [](void* count, void*, size_t) {
        ++*static_cast<uint64_t*>(count);
        return 0;
      },
      &records, nullptr);
  if (ring == nullptr) return Fail("cannot map its ring buffer");

  std::printf("ready %zu\n", offsets.size());
  std::fflush(stdout);
  pollfd in{STDIN_FILENO, POLLIN, 0};
  while (poll(&in, 1, 10) <= 0) ring_buffer__consume(ring);
  ring_buffer__consume(ring);
  std::printf("records %llu\n", static_cast<unsigned long long>(records));
  ring_buffer__free(ring);
  for (bpf_link* link : links) bpf_link__destroy(link);
  bpf_object__close(object);
}
