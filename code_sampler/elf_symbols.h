// SPDX-License-Identifier: Apache-2.0
// Addresses of exported symbols, from an ELF image as it lies in memory: its
// program headers, dynamic section and GNU hash table. No file is opened, so it
// does not matter in which mount namespace the process is, or whether the file
// has been replaced since.
//
// Layout: the System V gABI, and
// https://flapenguin.me/elf-dt-gnu-hash for the hash table.
#ifndef INGERO_CODE_SAMPLER_ELF_SYMBOLS_H_
#define INGERO_CODE_SAMPLER_ELF_SYMBOLS_H_

#include <span>
#include <string_view>
#include <vector>

#include "code_sampler/process_memory.h"

namespace ingero::code_sampler {

// Of the image whose ELF header is mapped at `base`. One address for each of
// `names`, 0 = it has no such symbol. Whatever the memory holds, it ends.
std::vector<uint64_t> FindSymbols(Memory* memory, uint64_t base,
                                  std::span<const std::string_view> names);

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_ELF_SYMBOLS_H_
