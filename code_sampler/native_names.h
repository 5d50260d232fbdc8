// SPDX-License-Identifier: Apache-2.0
// Which function of which file an instruction of another process belongs to:
// /proc/PID/maps, and the symbol tables of the mapped files by libelf.
//
// Files are opened through the process's own root (/proc/PID/root), so those of
// a container are found; one that was replaced since it was mapped is told by
// its inode and not believed.
//
// Threads: one.
#ifndef INGERO_CODE_SAMPLER_NATIVE_NAMES_H_
#define INGERO_CODE_SAMPLER_NATIVE_NAMES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace ingero::code_sampler {

struct NativeName {
  std::string file;      // path as the process maps it, "[vdso]", or "" = not
                         // of a file (code made at run time)
  std::string function;  // demangled, without parameters; "" = no symbol there
  bool operator==(const NativeName&) const = default;
};

// The functions of a file, by offset in it. 24 bytes for each; their names stay
// in the file, which is kept open.
class NativeFunctions {
 public:
  // None where it has no symbols, or is no ELF file. Bounded: kMostSymbols.
  static std::shared_ptr<const NativeFunctions> Read(const std::string& path);
  std::string At(uint64_t file_offset) const;

 private:
  struct Function {
    uint64_t offset;
    uint64_t name;  // where it is in the file
    uint32_t bytes;
  };
  Fd file_;
  std::vector<Function> functions_;  // by offset
};

// Files that were read, by device and inode: shared by processes.
using NativeFiles = std::map<std::pair<std::string, uint64_t>,
                             std::shared_ptr<const NativeFunctions>>;

class NativeNames {
 public:
  NativeNames(uint32_t pid, NativeFiles* files) : pid_(pid), files_(files) {}
  NativeName At(uint64_t ip);

 private:
  struct Mapping {
    uint64_t begin, end, offset, inode;
    std::string device, path;
  };
  const Mapping* Find(uint64_t ip) const;
  void ReadMaps();

  uint32_t pid_;
  NativeFiles* files_;
  std::vector<Mapping> mappings_;  // executable ones, by begin
  std::map<uint64_t, NativeName> known_;  // by ip; bounded
  int unknown_since_maps_ = 0;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_NATIVE_NAMES_H_
