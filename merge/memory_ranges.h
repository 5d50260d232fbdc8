// SPDX-License-Identifier: Apache-2.0
// Address ranges that allocations made known. Pure.
#ifndef INGERO_MERGE_MEMORY_RANGES_H_
#define INGERO_MERGE_MEMORY_RANGES_H_

#include <cstdint>
#include <map>

namespace ingero::merge {

enum class MemoryKind : uint8_t { kPinned, kDevice, kManaged };

class MemoryRanges {
 public:
  // A range replaces what it overlaps: its free was not seen.
  void Add(uint64_t begin, uint64_t bytes, MemoryKind kind) {
    if (begin == 0 || bytes == 0 || begin + bytes < begin) return;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin()) {
      auto before = std::prev(it);
      if (before->second.end > begin) it = before;
    }
    while (it != ranges_.end() && it->first < begin + bytes)
      it = ranges_.erase(it);
    ranges_[begin] = {begin + bytes, kind};
  }
  void Remove(uint64_t begin) { ranges_.erase(begin); }
  // The kind of the range that holds `address`, or nullptr.
  const MemoryKind* Find(uint64_t address) const {
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return nullptr;
    --it;
    return address < it->second.end ? &it->second.kind : nullptr;
  }

 private:
  struct Range {
    uint64_t end;
    MemoryKind kind;
  };
  std::map<uint64_t, Range> ranges_;  // disjoint, by begin
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_MEMORY_RANGES_H_
