// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace ingero::code_sampler {
namespace {

constexpr size_t kMaxSegments = 64, kMaxDynamic = 256;
// Of one bucket of the hash table.
constexpr uint32_t kMaxChain = 4096;
constexpr uint64_t kPageMask = ~uint64_t{4095};

uint32_t GnuHash(std::string_view name) {
  uint32_t h = 5381;
  for (const char c : name) h = h * 33 + static_cast<unsigned char>(c);
  return h;
}

// Where the dynamic section says that things are.
struct Dynamic {
  uint64_t symbols = 0, strings = 0, hash = 0, bias = 0;
};

bool ReadDynamic(Memory* memory, uint64_t base, Dynamic* d) {
  Elf64_Ehdr header;
  if (memory->Read(base, &header, sizeof(header)) != Outcome::kRead ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > kMaxSegments)
    return false;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (memory->Read(base + header.e_phoff, segments.data(),
                   segments.size() * sizeof(Elf64_Phdr)) != Outcome::kRead)
    return false;
  uint64_t lowest = UINT64_MAX, dynamic = 0, bytes = 0;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_LOAD) lowest = std::min(lowest, s.p_vaddr & kPageMask);
    if (s.p_type == PT_DYNAMIC) {
      dynamic = s.p_vaddr;
      bytes = s.p_memsz;
    }
  }
  if (lowest == UINT64_MAX || dynamic == 0) return false;
  d->bias = base - lowest;  // 0 where the program is not relocatable
  std::vector<Elf64_Dyn> entries(
      std::min<uint64_t>(bytes / sizeof(Elf64_Dyn), kMaxDynamic));
  if (entries.empty() ||
      memory->Read(d->bias + dynamic, entries.data(),
                   entries.size() * sizeof(Elf64_Dyn)) != Outcome::kRead)
    return false;
  // glibc writes the addresses back relocated, musl does not.
  const auto address = [&](uint64_t value) {
    return value < d->bias ? value + d->bias : value;
  };
  for (const Elf64_Dyn& e : entries) {
    if (e.d_tag == DT_NULL) break;
    if (e.d_tag == DT_SYMTAB) d->symbols = address(e.d_un.d_ptr);
    if (e.d_tag == DT_STRTAB) d->strings = address(e.d_un.d_ptr);
    if (e.d_tag == DT_GNU_HASH) d->hash = address(e.d_un.d_ptr);
  }
  return d->symbols != 0 && d->strings != 0 && d->hash != 0;
}

uint64_t Find(Memory* memory, const Dynamic& d, std::string_view name) {
  struct {
    uint32_t buckets, first_symbol, bloom_words, bloom_shift;
  } table;
  char text[64];
  if (name.size() >= sizeof(text) ||
      memory->Read(d.hash, &table, sizeof(table)) != Outcome::kRead ||
      table.buckets == 0)
    return 0;
  const uint64_t buckets = d.hash + sizeof(table) + uint64_t{table.bloom_words} * 8;
  const uint64_t chains = buckets + uint64_t{table.buckets} * 4;
  const uint32_t hash = GnuHash(name);
  uint32_t index;
  if (memory->Read(buckets + uint64_t{hash % table.buckets} * 4, &index, 4) !=
          Outcome::kRead ||
      index < table.first_symbol)
    return 0;
  for (uint32_t i = 0; i < kMaxChain; ++i, ++index) {
    uint32_t chained;
    if (memory->Read(chains + uint64_t{index - table.first_symbol} * 4,
                     &chained, 4) != Outcome::kRead)
      return 0;
    if ((chained | 1) == (hash | 1)) {
      Elf64_Sym symbol;
      if (memory->Read(d.symbols + uint64_t{index} * sizeof(symbol), &symbol,
                       sizeof(symbol)) != Outcome::kRead ||
          memory->Read(d.strings + symbol.st_name, text, name.size() + 1) !=
              Outcome::kRead)
        return 0;
      if (std::string_view(text, name.size()) == name &&
          text[name.size()] == '\0' && symbol.st_shndx != SHN_UNDEF)
        return symbol.st_value + d.bias;
    }
    if (chained & 1) return 0;
  }
  return 0;
}

}  // namespace

std::vector<uint64_t> FindSymbols(Memory* memory, uint64_t base,
                                  std::span<const std::string_view> names) {
  std::vector<uint64_t> found(names.size(), 0);
  Dynamic d;
  if (!ReadDynamic(memory, base, &d)) return found;
  for (size_t i = 0; i < names.size(); ++i)
    found[i] = Find(memory, d, names[i]);
  return found;
}

}  // namespace ingero::code_sampler
