// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/python_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "code_sampler/elf_symbols.h"

namespace ingero::code_sampler {
namespace {

constexpr size_t kMaxInterpreters = 64, kMaxThreads = 4096;
// Of one thread; deeper down lies nobody's own code that was not met before.
constexpr size_t kMaxFrames = 200;
constexpr size_t kMaxFileBytes = 4096, kMaxNameBytes = 1024;
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr uint64_t kMaxUnits = 1 << 22;
// A program that makes code all the time: all is read anew.
constexpr size_t kMaxCodes = 20'000;
constexpr int kAttempts = 4;
// enum _frameowner: of 3.12 and 3.13, an entry from C with no code of its own.
constexpr uint8_t kOwnedByC = 3;

uint64_t Word(const char* bytes, size_t at) {
  uint64_t value;
  std::memcpy(&value, bytes + at, sizeof(value));
  return value;
}
uint32_t Half(const char* bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes + at, sizeof(value));
  return value;
}

// Pointers of a process: not null, aligned, in the lower half.
bool IsPointer(uint64_t p) {
  return p >= 4096 && p < (uint64_t{1} << 56) && p % 8 == 0;
}

void AppendUtf8(uint32_t c, std::string* to) {
  if (c < 0x80) {
    *to += static_cast<char>(c);
  } else if (c < 0x800) {
    *to += static_cast<char>(0xc0 | c >> 6);
    *to += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    *to += static_cast<char>(0xe0 | c >> 12);
    *to += static_cast<char>(0x80 | (c >> 6 & 63));
    *to += static_cast<char>(0x80 | (c & 63));
  } else {
    *to += static_cast<char>(0xf0 | (c >> 18 & 7));
    *to += static_cast<char>(0x80 | (c >> 12 & 63));
    *to += static_cast<char>(0x80 | (c >> 6 & 63));
    *to += static_cast<char>(0x80 | (c & 63));
  }
}

// Code that is made from text, as by exec, has "<string>" and the like.
bool IsUsers(std::string_view file) {
  if (file.starts_with('<'))
    return file == "<string>" || file == "<stdin>" ||
           file.starts_with("<ipython-input");
  return file.find("/site-packages/") == file.npos &&
         file.find("/dist-packages/") == file.npos &&
         file.find("/lib/python3") == file.npos;
}

// Of the image at offset 0 of a file whose name `is` accepts; 0 = none.
template <typename F>
uint64_t ImageBase(std::string_view maps, F is) {
  while (!maps.empty()) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    const std::string line(maps.substr(0, end));
    maps.remove_prefix(std::min(end + 1, maps.size()));
    unsigned long long begin, to, offset;
    int path = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx %*s %llx %*s %*s %n", &begin, &to,
                    &offset, &path) < 3 ||
        path == 0 || offset != 0 || !is(std::string_view(line).substr(
                                        static_cast<size_t>(path))))
      continue;
    return begin;
  }
  return 0;
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

size_t Places::Hash::operator()(const Place& p) const {
  return std::hash<std::string>()(p.file) ^
         std::hash<std::string>()(p.function) * 31 ^ size_t{p.line} << 20;
}

uint32_t Places::IdOf(const Place& place) {
  if (const auto it = ids_.find(place); it != ids_.end()) return it->second;
  if (places_.size() >= kMost) return 0;
  const auto id = static_cast<uint32_t>(places_.size() + 1);
  places_.push_back(&ids_.emplace(place, id).first->first);
  return id;
}

// ---- what it is -----------------------------------------------------------------

OpenPython PythonProcess::Open(Memory* memory, std::string_view maps,
                               std::string_view exe) {
  OpenPython open;
  constexpr std::string_view kNames[] = {"_PyRuntime", "PyCode_Type",
                                         "Py_Version"};
  const uint64_t bases[] = {
      ImageBase(maps,
                [](std::string_view path) {
                  return BaseName(path).starts_with("libpython3.");
                }),
      ImageBase(maps, [&](std::string_view path) { return path == exe; })};
  for (const uint64_t base : bases) {
    if (base == 0) continue;
    const std::vector<uint64_t> found = FindSymbols(memory, base, kNames);
    if (found[0] == 0) continue;
    uint64_t version = 0x03000000;
    if (found[2] == 0) {
      open.problem = fmt::format("Python before 3.11 is not read, only {}",
                                 kPythonVersions);
      return open;
    }
    if (memory->Read(found[2], &version, sizeof(version)) != Outcome::kRead ||
        found[1] == 0)
      return open;
    const auto hex = static_cast<uint32_t>(version);
    std::string problem;
    std::optional<PythonLayout> layout = KnownLayout(hex);
    if (hex >> 16 == 0x030d) {
      std::string head(kDebugOffsetsBytes, '\0');
      if (memory->Read(found[0], head.data(), head.size()) != Outcome::kRead)
        return open;
      layout = DescribedLayout(hex, head, &problem);
    }
    if (!layout) {
      open.problem =
          fmt::format("Python {}.{} is not read{}, only {}", hex >> 24 & 255,
                      hex >> 16 & 255,
                      problem.empty() ? "" : " (" + problem + ")",
                      kPythonVersions);
      return open;
    }
    open.process.reset(
        new PythonProcess(memory, found[0], found[1], *layout));
    return open;
  }
  return open;
}

PythonProcess::PythonProcess(Memory* memory, uint64_t runtime,
                             uint64_t code_type, const PythonLayout& layout)
    : memory_(memory),
      runtime_(runtime),
      code_type_(code_type),
      layout_(layout) {
  code_head_bytes_ = std::max({layout.code_file, layout.code_qualified_name,
                               layout.code_first_line, layout.code_line_table,
                               layout.object_size}) +
                     size_t{8};
  frame_bytes_ = std::max({layout.frame_code, layout.frame_previous,
                           layout.frame_instruction}) +
                 size_t{8};
  frame_bytes_ = std::max(frame_bytes_, layout.frame_owner + size_t{1});
  const auto [first, last] =
      std::minmax({layout.thread_next, layout.thread_interpreter,
                   layout.thread_native_id, layout.thread_frame});
  thread_begin_ = first;
  thread_bytes_ = last + size_t{8} - first;
}

// ---- code objects -----------------------------------------------------------------

bool PythonProcess::LoadText(uint64_t at, size_t most, uint64_t* data_at,
                             std::string* raw, std::string* text) {
  char head[128];
  const size_t bytes = std::max(layout_.text_state, layout_.text_length) + 8u;
  if (!IsPointer(at) || bytes > sizeof(head) ||
      memory_->Read(at, head, bytes) != Outcome::kRead)
    return false;
  // struct PyASCIIObject.state: interned:2 kind:3 compact:1 ascii:1.
  const uint32_t state = Half(head, layout_.text_state);
  const uint32_t kind = state >> 2 & 7;
  const bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
  const uint64_t length = Word(head, layout_.text_length);
  if (!compact || (kind != 1 && kind != 2 && kind != 4) || length > most)
    return false;
  *data_at = at + (ascii ? layout_.text_ascii_data : layout_.text_compact_data);
  raw->resize(length * kind);
  if (length > 0 &&
      memory_->Read(*data_at, raw->data(), raw->size()) != Outcome::kRead)
    return false;
  text->clear();
  for (size_t i = 0; i < length; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, raw->data() + i * kind, kind);
    if (c == 0) return false;
    AppendUtf8(c, text);
  }
  return true;
}

const PythonProcess::Code* PythonProcess::CodeAt(uint64_t at) {
  if (const auto it = codes_.find(at); it != codes_.end())
    return it->second.get();
  auto code = std::make_unique<Code>();
  code->at = at;
  code->head.resize(code_head_bytes_);
  char* head = code->head.data();
  if (!IsPointer(at) ||
      memory_->Read(at, head, code_head_bytes_) != Outcome::kRead ||
      Word(head, layout_.object_type) != code_type_)
    return nullptr;
  const uint64_t units = Word(head, layout_.object_size);
  code->first_line = Half(head, layout_.code_first_line);
  if (units == 0 || units > kMaxUnits || code->first_line > INT32_MAX)
    return nullptr;
  code->units = static_cast<uint32_t>(units);
  const uint64_t lines = Word(head, layout_.code_line_table);
  uint64_t bytes = 0;
  if (!LoadText(Word(head, layout_.code_file), kMaxFileBytes, &code->file_at,
                &code->file, &code->place.file) ||
      !LoadText(Word(head, layout_.code_qualified_name), kMaxNameBytes,
                &code->name_at, &code->name, &code->place.function) ||
      !IsPointer(lines) ||
      memory_->Read(lines + layout_.object_size, &bytes, sizeof(bytes)) !=
          Outcome::kRead ||
      bytes > kMaxLineBytes)
    return nullptr;
  code->lines_at = lines + layout_.bytes_data;
  code->lines.resize(bytes);
  if (memory_->Read(code->lines_at, code->lines.data(), bytes) !=
          Outcome::kRead ||
      !code->table.Parse(code->lines, code->first_line, code->units))
    return nullptr;
  code->place.user = IsUsers(code->place.file);
  return codes_.emplace(at, std::move(code)).first->second.get();
}

// ---- frames -----------------------------------------------------------------------

uint64_t PythonProcess::ReadFirstFrame(const Thread& thread) {
  uint64_t frame = 0;
  return IsPointer(thread.cframe) &&
                 memory_->Read(thread.cframe + layout_.cframe_frame, &frame,
                               sizeof(frame)) == Outcome::kRead
             ? frame
             : 0;
}

bool PythonProcess::ReadThread(uint64_t at, uint64_t interpreter,
                               Thread* thread) {
  char bytes[512];
  if (!IsPointer(at) || thread_bytes_ > sizeof(bytes) ||
      memory_->Read(at + thread_begin_, bytes, thread_bytes_) !=
          Outcome::kRead ||
      Word(bytes, layout_.thread_interpreter - thread_begin_) != interpreter)
    return false;
  thread->at = at;
  thread->next = Word(bytes, layout_.thread_next - thread_begin_);
  const uint64_t tid = Word(bytes, layout_.thread_native_id - thread_begin_);
  if (tid > INT32_MAX) return false;
  thread->tid = static_cast<uint32_t>(tid);
  const uint64_t frame = Word(bytes, layout_.thread_frame - thread_begin_);
  thread->frame = layout_.through_cframe ? 0 : frame;
  thread->cframe = layout_.through_cframe ? frame : 0;
  return true;
}

uint32_t PythonProcess::LineOf(const Frame& frame, bool* known) const {
  const Code& code = *frame.code;
  const uint64_t begin = code.at + layout_.code_instructions;
  *known = true;
  // Before the first one: it has not begun. (3.11 and 3.12.)
  if (frame.instruction + 2 == begin) return code.first_line;
  const uint64_t unit = (frame.instruction - begin) / 2;
  *known = frame.instruction >= begin && unit < code.units &&
           (frame.instruction - begin) % 2 == 0;
  return *known ? code.table.LineOf(static_cast<uint32_t>(unit)) : 0;
}

bool PythonProcess::Walk(uint64_t at) {
  frames_.clear();
  for (size_t depth = 0; at != 0; ++depth) {
    if (depth == kMaxFrames) return true;  // as far as that
    if (!IsPointer(at)) return false;
    Frame& frame = frames_.emplace_back();
    if (memory_->Read(at, frame.bytes.data(), frame_bytes_) != Outcome::kRead)
      return false;
    const char* bytes = frame.bytes.data();
    frame.at = at;
    frame.previous = Word(bytes, layout_.frame_previous);
    frame.instruction = Word(bytes, layout_.frame_instruction);
    at = frame.previous;
    const auto owner = static_cast<uint8_t>(bytes[layout_.frame_owner]);
    if (owner > kOwnedByC) return false;
    if (owner == kOwnedByC && layout_.minor >= 12) continue;
    frame.code = CodeAt(Word(bytes, layout_.frame_code));
    bool known = false;
    if (frame.code == nullptr || (LineOf(frame, &known), !known)) return false;
    if (frame.code->place.user) return true;
  }
  return true;
}

size_t PythonProcess::Changed(const Thread& thread) {
  pieces_.clear();
  uint64_t first = 0, root = 0;
  if (layout_.through_cframe)
    pieces_.push_back({thread.cframe + layout_.cframe_frame, &first, 8});
  pieces_.push_back({thread.at + layout_.thread_frame, &root, 8});
  // Codes once, however deep a function calls itself.
  std::vector<const Code*> codes;
  size_t bytes = 0;
  for (Frame& frame : frames_) {
    pieces_.push_back({frame.at, frame.again.data(), frame_bytes_});
    if (frame.code == nullptr ||
        std::find(codes.begin(), codes.end(), frame.code) != codes.end())
      continue;
    codes.push_back(frame.code);
    bytes += frame.code->head.size() + frame.code->lines.size() +
             frame.code->file.size() + frame.code->name.size();
  }
  again_.resize(bytes);
  char* to = again_.data();
  const auto add = [&](uint64_t at, const std::string& like) {
    if (like.empty()) return;
    pieces_.push_back({at, to, like.size()});
    to += like.size();
  };
  for (const Code* code : codes) {
    add(code->at, code->head);
    add(code->lines_at, code->lines);
    add(code->file_at, code->file);
    add(code->name_at, code->name);
  }
  if (pieces_.size() > kMaxPieces ||
      memory_->Read(pieces_) != Outcome::kRead) {
    for (const Code* code : codes) codes_.erase(code->at);
    return frames_.size();
  }
  // A code object that has given its place to another one.
  std::vector<const Code*> gone;
  const char* from = again_.data();
  for (const Code* code : codes) {
    bool same = true;
    // The reference count moves all the time; the type must not.
    const size_t skip = layout_.object_type;
    same = std::memcmp(from + skip, code->head.data() + skip,
                       code->head.size() - skip) == 0;
    from += code->head.size();
    for (const std::string* text : {&code->lines, &code->file, &code->name}) {
      same = same && std::memcmp(from, text->data(), text->size()) == 0;
      from += text->size();
    }
    if (!same) gone.push_back(code);
  }
  // From the outermost inwards, as far as nothing has changed.
  size_t held = frames_.size();
  while (held > 0) {
    const Frame& frame = frames_[held - 1];
    const auto same = [&](size_t at, size_t size) {
      return std::memcmp(frame.bytes.data() + at, frame.again.data() + at,
                         size) == 0;
    };
    const bool innermost = held == 1;
    if (!same(layout_.frame_code, 8) || !same(layout_.frame_previous, 8) ||
        // The innermost goes on from line to line.
        (!innermost && !same(layout_.frame_instruction, 8)) ||
        std::find(gone.begin(), gone.end(), frame.code) != gone.end())
      break;
    --held;
  }
  for (const Code* code : gone) codes_.erase(code->at);
  const bool root_held =
      layout_.through_cframe
          ? root == thread.cframe && first == frames_.front().at
          : root == frames_.front().at;
  // It is not the innermost any more: what it was at is not known.
  return root_held ? held : std::max<size_t>(held, 1);
}

void PythonProcess::LookAt(Thread thread, uint64_t interpreter,
                           Places* places, std::vector<ThreadPlace>* out,
                           LookCounts* counts) {
  bool had_frames = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0 && !ReadThread(thread.at, interpreter, &thread)) break;
    const uint64_t first =
        layout_.through_cframe ? ReadFirstFrame(thread) : thread.frame;
    if (first == 0) continue;  // it runs no Python code just now
    had_frames = true;
    if (!Walk(first)) continue;
    const size_t changed = Changed(thread);
    const bool last = attempt + 1 == kAttempts;
    if (changed > 0 && (!last || changed >= frames_.size())) continue;
    // What holds, from the innermost.
    const Frame *innermost = nullptr, *user = nullptr;
    for (size_t i = changed; i < frames_.size(); ++i) {
      if (frames_[i].code == nullptr) continue;
      if (innermost == nullptr) innermost = &frames_[i];
      if (user == nullptr && frames_[i].code->place.user) user = &frames_[i];
    }
    if (innermost == nullptr) continue;
    const auto id = [&](const Frame& frame) {
      bool known;
      Place place = frame.code->place;
      place.line = LineOf(frame, &known);
      return places->IdOf(place);
    };
    ThreadPlace at;
    at.tid = thread.tid;
    at.innermost = id(*innermost);
    at.place = user == nullptr ? at.innermost : id(*user);
    if (at.place == 0 || at.innermost == 0) break;
    out->push_back(at);
    ++counts->threads;
    if (changed > 0) ++counts->partial;
    return;
  }
  if (!had_frames) return;
  ++counts->threads;
  ++counts->dropped;
}

Outcome PythonProcess::Look(Places* places, std::vector<ThreadPlace>* out,
                            LookCounts* counts) {
  uint64_t interpreter = 0;
  const Outcome outcome = memory_->Read(
      runtime_ + layout_.runtime_interpreters, &interpreter, 8);
  if (outcome != Outcome::kRead) return outcome;
  if (codes_.size() >= kMaxCodes) codes_.clear();
  size_t threads = 0;
  for (size_t i = 0; interpreter != 0 && i < kMaxInterpreters; ++i) {
    uint64_t next = 0, at = 0;
    if (!IsPointer(interpreter)) break;
    const Piece pieces[] = {
        {interpreter + layout_.interpreter_next, &next, 8},
        {interpreter + layout_.interpreter_threads, &at, 8}};
    // It is ending, or not there yet.
    if (memory_->Read(pieces) != Outcome::kRead) break;
    while (at != 0 && threads++ < kMaxThreads) {
      Thread thread;
      if (!ReadThread(at, interpreter, &thread)) break;
      if (thread.tid != 0)
        LookAt(thread, interpreter, places, out, counts);
      at = thread.next;
    }
    interpreter = next;
  }
  return Outcome::kRead;
}

}  // namespace ingero::code_sampler
