// SPDX-License-Identifier: Apache-2.0
// Where CPython has what is read of it: offsets in its structures, on 64-bit
// little-endian Linux.
//
// 3.11 and 3.12: offsetof() over the headers of that version
// (Include/internal/pycore_{runtime,interp,frame}.h, Include/cpython/
// {pystate,code,unicodeobject}.h), which do not change within a minor version;
// tests/code_sampler/layout_test.py compiles and compares them with those that
// are installed. 3.13 tells them itself: struct _Py_DebugOffsets at the start
// of _PyRuntime, in Include/internal/pycore_runtime.h.
#ifndef INGERO_CODE_SAMPLER_PYTHON_LAYOUT_H_
#define INGERO_CODE_SAMPLER_PYTHON_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingero::code_sampler {

// X(name): one row an offset.
#define INGERO_PYTHON_OFFSETS(X)                                             \
  X(runtime_interpreters) /* _PyRuntimeState.interpreters.head */            \
  X(interpreter_next)                                                        \
  X(interpreter_threads)  /* threads.head */                                 \
  X(thread_next)                                                             \
  X(thread_interpreter)                                                      \
  X(thread_native_id)                                                        \
  X(thread_frame)   /* 3.13: current_frame; before: cframe, which has it */  \
  X(cframe_frame)   /* _PyCFrame.current_frame; before 3.13 */               \
  X(frame_code)                                                              \
  X(frame_previous)                                                          \
  X(frame_instruction) /* prev_instr, instr_ptr */                           \
  X(frame_owner)                                                             \
  X(code_file)                                                               \
  X(code_qualified_name)                                                     \
  X(code_first_line)                                                         \
  X(code_line_table)                                                         \
  X(code_instructions) /* co_code_adaptive */                                \
  X(object_type)                                                             \
  X(object_size)  /* ob_size: of code its instructions, of bytes the bytes */ \
  X(bytes_data)                                                              \
  X(text_length)                                                             \
  X(text_state)                                                              \
  X(text_ascii_data)   /* behind PyASCIIObject */                            \
  X(text_compact_data) /* behind PyCompactUnicodeObject */

struct PythonLayout {
  unsigned minor = 0;
  bool through_cframe = false;
#define X(name) uint16_t name = 0;
  INGERO_PYTHON_OFFSETS(X)
#undef X
};

// "3.11, 3.12, 3.13".
inline constexpr char kPythonVersions[] = "3.11, 3.12 and 3.13";

// By PY_VERSION_HEX. nullopt: of no table; 3.13 is not in any.
std::optional<PythonLayout> KnownLayout(uint32_t version);

// What 3.13's _PyRuntime begins with, as far as it is read.
inline constexpr size_t kDebugOffsetsBytes = 784;
// nullopt, and why in *problem: it is not that, or of another version.
std::optional<PythonLayout> DescribedLayout(uint32_t version,
                                            std::string_view debug_offsets,
                                            std::string* problem);

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_PYTHON_LAYOUT_H_
