// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/native_names.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"

namespace ingero::code_sampler {
namespace {

constexpr size_t kMostSymbols = 4'000'000, kMostKnown = 65'536;
// The path that /proc/PID/maps gives a file that is gone.
constexpr std::string_view kDeleted = " (deleted)";
// Of a mangled name; longer ones are told as far as that.
constexpr size_t kMostName = 1023;
// Instructions of no mapping until the maps are read again.
constexpr int kUnknownUntilRead = 16;

// "at::native::add(at::Tensor const&)" -> "at::native::add"; template arguments
// stay, those of the function are left out.
std::string Demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  if (status != 0 || text == nullptr) return name;
  const std::string whole = text.get();
  int depth = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == '<') ++depth;
    if (whole[i] == '>' && (i == 0 || whole[i - 1] != '-')) --depth;
    if (whole[i] == '(' && depth <= 0 && i > 0 &&
        whole.compare(i, 21, "(anonymous namespace)") != 0)
      return whole.substr(0, i);
  }
  return whole;
}

}  // namespace

std::shared_ptr<const NativeFunctions> NativeFunctions::Read(
    const std::string& path) {
  auto out = std::make_shared<NativeFunctions>();
  auto file = OpenFile(path, O_RDONLY);
  if (!file.ok() || elf_version(EV_CURRENT) == EV_NONE) return out;
  out->file_ = std::move(*file);
  // Not mapped: whoever cuts the file meanwhile would end us.
  const std::unique_ptr<Elf, int (*)(Elf*)> elf(
      elf_begin(out->file_.get(), ELF_C_READ, nullptr), elf_end);
  size_t segments = 0;
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF ||
      elf_getphdrnum(elf.get(), &segments) != 0)
    return out;
  std::vector<GElf_Phdr> loads;
  for (size_t i = 0; i < segments; ++i)
    if (GElf_Phdr p; gelf_getphdr(elf.get(), static_cast<int>(i), &p) != nullptr &&
                     p.p_type == PT_LOAD)
      loads.push_back(p);
  // .symtab has what .dynsym has, where there is one.
  Elf_Scn* tables[2] = {};
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf.get(), s)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(s, &header) == nullptr) continue;
    if (header.sh_type == SHT_SYMTAB) tables[0] = s;
    if (header.sh_type == SHT_DYNSYM) tables[1] = s;
  }
  Elf_Scn* table = tables[0] != nullptr ? tables[0] : tables[1];
  GElf_Shdr header, strings;
  if (table == nullptr || gelf_getshdr(table, &header) == nullptr ||
      header.sh_entsize == 0 ||
      gelf_getshdr(elf_getscn(elf.get(), header.sh_link), &strings) == nullptr)
    return out;
  Elf_Data* data = elf_getdata(table, nullptr);
  const size_t count =
      std::min<size_t>(header.sh_size / header.sh_entsize, kMostSymbols);
  for (size_t i = 0; data != nullptr && i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
    const auto type = GELF_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) ||
        symbol.st_shndx == SHN_UNDEF)
      continue;
    if (symbol.st_name == 0 || symbol.st_name >= strings.sh_size) continue;
    for (const GElf_Phdr& p : loads) {
      if (symbol.st_value < p.p_vaddr ||
          symbol.st_value - p.p_vaddr >= p.p_filesz)
        continue;
      out->functions_.push_back(
          {symbol.st_value - p.p_vaddr + p.p_offset,
           strings.sh_offset + symbol.st_name,
           static_cast<uint32_t>(std::min<uint64_t>(symbol.st_size,
                                                    UINT32_MAX))});
      break;
    }
  }
  std::sort(out->functions_.begin(), out->functions_.end(),
            [](const Function& a, const Function& b) {
              return a.offset != b.offset ? a.offset < b.offset
                                          : a.bytes > b.bytes;
            });
  return out;
}

std::string NativeFunctions::At(uint64_t file_offset) const {
  auto after = std::upper_bound(
      functions_.begin(), functions_.end(), file_offset,
      [](uint64_t at, const Function& f) { return at < f.offset; });
  if (after == functions_.begin()) return "";
  const Function& f = *std::prev(after);
  // Without a size (assembler): up to the next one.
  if (f.bytes != 0 && file_offset - f.offset >= f.bytes) return "";
  char name[kMostName + 1];
  const ssize_t n = pread(file_.get(), name, kMostName,
                          static_cast<off_t>(f.name));
  if (n <= 0) return "";
  name[n] = '\0';
  return Demangled(name);
}

const NativeNames::Mapping* NativeNames::Find(uint64_t ip) const {
  auto after = std::upper_bound(
      mappings_.begin(), mappings_.end(), ip,
      [](uint64_t at, const Mapping& m) { return at < m.begin; });
  if (after == mappings_.begin()) return nullptr;
  const Mapping& m = *std::prev(after);
  return ip < m.end ? &m : nullptr;
}

void NativeNames::ReadMaps() {
  unknown_since_maps_ = 0;
  auto maps = ReadWholeFile("/proc/" + std::to_string(pid_) + "/maps");
  if (!maps.ok()) return;  // it has ended: what is known serves on
  mappings_.clear();
  known_.clear();
  for (size_t at = 0; at < maps->size();) {
    const size_t end = std::min(maps->find('\n', at), maps->size());
    const std::string line = maps->substr(at, end - at);
    at = end + 1;
    Mapping m;
    char rights[5] = "", device[32] = "";
    int path = 0;
    if (sscanf(line.c_str(),
               "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %31s %" SCNu64 " %n",
               &m.begin, &m.end, rights, &m.offset, device, &m.inode,
               &path) < 6 ||
        rights[2] != 'x')
      continue;
    m.device = device;
    if (path > 0) m.path = line.substr(static_cast<size_t>(path));
    mappings_.push_back(std::move(m));
  }
  std::sort(mappings_.begin(), mappings_.end(),
            [](const Mapping& a, const Mapping& b) { return a.begin < b.begin; });
}

NativeName NativeNames::At(uint64_t ip) {
  if (const auto it = known_.find(ip); it != known_.end()) return it->second;
  const Mapping* m = Find(ip);
  if (m == nullptr &&
      (mappings_.empty() || ++unknown_since_maps_ >= kUnknownUntilRead)) {
    ReadMaps();
    m = Find(ip);
  }
  NativeName name;
  if (m == nullptr) return name;
  if (m->path.starts_with('[')) {
    name.file = m->path;
  } else if (m->inode != 0) {
    name.file = m->path;
    if (name.file.ends_with(kDeleted))
      name.file.resize(name.file.size() - kDeleted.size());
    auto [it, is_new] = files_->try_emplace({m->device, m->inode});
    if (is_new) {
      const std::string path =
          "/proc/" + std::to_string(pid_) + "/root" + m->path;
      struct stat st;
      if (stat(path.c_str(), &st) == 0 && st.st_ino == m->inode)
        it->second = NativeFunctions::Read(path);
      else
        it->second = std::make_shared<NativeFunctions>();
    }
    name.function = it->second->At(ip - m->begin + m->offset);
  }
  if (known_.size() >= kMostKnown) known_.clear();
  known_.emplace(ip, name);
  return name;
}

}  // namespace ingero::code_sampler
