// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/python_layout.h"

#include <cstring>

namespace ingero::code_sampler {
namespace {

constexpr PythonLayout k311 = {
    .minor = 11,
    .through_cframe = true,
    .runtime_interpreters = 40,
    .interpreter_next = 0,
    .interpreter_threads = 16,
    .thread_next = 8,
    .thread_interpreter = 16,
    .thread_native_id = 160,
    .thread_frame = 56,
    .cframe_frame = 8,
    .frame_code = 32,
    .frame_previous = 48,
    .frame_instruction = 56,
    .frame_owner = 69,
    .code_file = 112,
    .code_qualified_name = 128,
    .code_first_line = 72,
    .code_line_table = 136,
    .code_instructions = 184,
    .object_type = 8,
    .object_size = 16,
    .bytes_data = 32,
    .text_length = 16,
    .text_state = 32,
    .text_ascii_data = 48,
    .text_compact_data = 72,
};

constexpr PythonLayout k312 = {
    .minor = 12,
    .through_cframe = true,
    .runtime_interpreters = 40,
    .interpreter_next = 0,
    .interpreter_threads = 72,
    .thread_next = 8,
    .thread_interpreter = 16,
    .thread_native_id = 144,
    .thread_frame = 56,
    .cframe_frame = 0,
    .frame_code = 0,
    .frame_previous = 8,
    .frame_instruction = 56,
    .frame_owner = 70,
    .code_file = 112,
    .code_qualified_name = 128,
    .code_first_line = 68,
    .code_line_table = 136,
    .code_instructions = 192,
    .object_type = 8,
    .object_size = 16,
    .bytes_data = 32,
    .text_length = 16,
    .text_state = 32,
    .text_ascii_data = 40,
    .text_compact_data = 56,
};

// struct _Py_DebugOffsets of 3.13, member by member.
struct DebugOffsets {
  char cookie[8];
  uint64_t version, free_threaded;
  struct {
    uint64_t size, finalizing, interpreters_head;
  } runtime;
  struct {
    uint64_t size, id, next, threads_head, gc, imports_modules, sysdict,
        builtins, ceval_gil, gil_runtime_state, gil_runtime_state_enabled,
        gil_runtime_state_locked, gil_runtime_state_holder;
  } interpreter;
  struct {
    uint64_t size, prev, next, interp, current_frame, thread_id,
        native_thread_id, datastack_chunk, status;
  } thread;
  struct {
    uint64_t size, previous, executable, instr_ptr, localsplus, owner;
  } frame;
  struct {
    uint64_t size, filename, name, qualname, linetable, firstlineno, argcount,
        localsplusnames, localspluskinds, co_code_adaptive;
  } code;
  struct {
    uint64_t size, ob_type;
  } object;
  struct {
    uint64_t size, tp_name, tp_repr, tp_flags;
  } type;
  struct {
    uint64_t size, ob_item, ob_size;
  } tuple, list;
  struct {
    uint64_t size, ma_keys, ma_values;
  } dict;
  struct {
    uint64_t size, ob_fval;
  } real;
  struct {
    uint64_t size, lv_tag, ob_digit;
  } integer;
  struct {
    uint64_t size, ob_size, ob_sval;
  } bytes;
  struct {
    uint64_t size, state, length, asciiobject_size;
  } text;
};
static_assert(sizeof(DebugOffsets) <= kDebugOffsetsBytes);

}  // namespace

std::optional<PythonLayout> KnownLayout(uint32_t version) {
  switch (version >> 16) {
    case 0x030b:
      return k311;
    case 0x030c:
      return k312;
    default:
      return std::nullopt;
  }
}

std::optional<PythonLayout> DescribedLayout(uint32_t version,
                                            std::string_view debug_offsets,
                                            std::string* problem) {
  DebugOffsets d;
  if (debug_offsets.size() < sizeof(d)) {
    *problem = "it does not describe itself";
    return std::nullopt;
  }
  std::memcpy(&d, debug_offsets.data(), sizeof(d));
  if (std::memcmp(d.cookie, "xdebugpy", sizeof(d.cookie)) != 0 ||
      d.version != version) {
    *problem = "it does not describe itself";
    return std::nullopt;
  }
  if (d.free_threaded != 0) {
    *problem = "a build without the GIL";
    return std::nullopt;
  }
  PythonLayout layout;
  layout.minor = (version >> 16) & 255;
  bool fits = true;
  const auto set = [&fits](uint16_t* to, uint64_t value) {
    fits = fits && value < 16384;
    *to = static_cast<uint16_t>(value);
  };
  set(&layout.runtime_interpreters, d.runtime.interpreters_head);
  set(&layout.interpreter_next, d.interpreter.next);
  set(&layout.interpreter_threads, d.interpreter.threads_head);
  set(&layout.thread_next, d.thread.next);
  set(&layout.thread_interpreter, d.thread.interp);
  set(&layout.thread_native_id, d.thread.native_thread_id);
  set(&layout.thread_frame, d.thread.current_frame);
  set(&layout.frame_code, d.frame.executable);
  set(&layout.frame_previous, d.frame.previous);
  set(&layout.frame_instruction, d.frame.instr_ptr);
  set(&layout.frame_owner, d.frame.owner);
  set(&layout.code_file, d.code.filename);
  set(&layout.code_qualified_name, d.code.qualname);
  set(&layout.code_first_line, d.code.firstlineno);
  set(&layout.code_line_table, d.code.linetable);
  set(&layout.code_instructions, d.code.co_code_adaptive);
  set(&layout.object_type, d.object.ob_type);
  set(&layout.object_size, d.bytes.ob_size);
  set(&layout.bytes_data, d.bytes.ob_sval);
  set(&layout.text_length, d.text.length);
  set(&layout.text_state, d.text.state);
  set(&layout.text_ascii_data, d.text.asciiobject_size);
  // PyCompactUnicodeObject: utf8_length and utf8 behind PyASCIIObject.
  set(&layout.text_compact_data, d.text.asciiobject_size + 16);
  if (!fits) {
    *problem = "its description of itself does not add up";
    return std::nullopt;
  }
  return layout;
}

}  // namespace ingero::code_sampler
