// SPDX-License-Identifier: Apache-2.0
// Where in its file a function of this process lies: what a uprobe asks for.
#ifndef INGERO_BENCH_FILE_OFFSET_H_
#define INGERO_BENCH_FILE_OFFSET_H_

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

inline std::optional<std::pair<std::string, size_t>> FileOffset(
    void* function) {
  Dl_info info;
  link_map* map = nullptr;
  if (!dladdr1(function, &info, reinterpret_cast<void**>(&map),
               RTLD_DL_LINKMAP))
    return std::nullopt;
  const auto address = reinterpret_cast<uintptr_t>(function) - map->l_addr;
  const auto* base = reinterpret_cast<const char*>(info.dli_fbase);
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  const auto* segments =
      reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD &&
        address - segments[i].p_vaddr < segments[i].p_filesz)
      return std::pair(std::string(info.dli_fname),
                       address - segments[i].p_vaddr + segments[i].p_offset);
  return std::nullopt;
}

#endif  // INGERO_BENCH_FILE_OFFSET_H_
