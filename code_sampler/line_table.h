// SPDX-License-Identifier: Apache-2.0
// Which line an instruction of a Python code object belongs to (3.11 and
// later): co_linetable, as Objects/locations.md and
// InternalDocs/code_objects.md of CPython have it.
#ifndef INGERO_CODE_SAMPLER_LINE_TABLE_H_
#define INGERO_CODE_SAMPLER_LINE_TABLE_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace ingero::code_sampler {

class LineTable {
 public:
  // False: the bytes are no such table. `units`: instructions of 2 bytes that
  // the code has; the table covers them exactly.
  bool Parse(std::string_view bytes, uint32_t first_line, uint32_t units);
  // 0: the instruction has no line (what the compiler added).
  // REQUIRES: unit < units of Parse
  uint32_t LineOf(uint32_t unit) const;

 private:
  struct Range {
    uint32_t end;  // unit after the last
    uint32_t line;
  };
  std::vector<Range> ranges_;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_LINE_TABLE_H_
