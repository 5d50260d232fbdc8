// SPDX-License-Identifier: Apache-2.0
// The threads of a running CPython, and the lines that they are at, read from
// outside while it runs.
//
// Nothing stands still meanwhile, so nothing that is read is believed: each
// code object must have the type of code objects, each instruction must lie in
// its code, each length must be sane, and in the end all of it is read once
// more, at once, and must be the same. Where frames have come or gone in
// between, the callers that stayed the same are what is told; where nothing
// did, the sample is dropped and counted. So a line that is told is one that
// the thread was at while it was read.
//
// Threads: one. Errors: Open says in one line why a process cannot be read;
// Sample counts.
#ifndef INGERO_CODE_SAMPLER_PYTHON_PROCESS_H_
#define INGERO_CODE_SAMPLER_PYTHON_PROCESS_H_

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "code_sampler/line_table.h"
#include "code_sampler/process_memory.h"
#include "code_sampler/python_layout.h"

namespace ingero::code_sampler {

// A line of code. The texts are the process's own: not to be printed as they
// are.
struct Place {
  std::string file, function;
  uint32_t line = 0;
  bool user = false;  // not of Python itself nor of an installed package
  bool operator==(const Place&) const = default;
};

// Ids of places, from 1.
class Places {
 public:
  // 0: there are too many (a program that makes code without end).
  uint32_t IdOf(const Place& place);
  size_t size() const { return places_.size(); }
  const Place& at(uint32_t id) const { return *places_[id - 1]; }

 private:
  static constexpr size_t kMost = 200'000;
  struct Hash {
    size_t operator()(const Place& p) const;
  };
  std::unordered_map<Place, uint32_t, Hash> ids_;
  std::vector<const Place*> places_;
};

struct ThreadPlace {
  uint32_t tid;        // as the process itself sees it
  uint32_t place;      // the innermost that is the user's; else the innermost
  uint32_t innermost;
};

// What a look at a process came to.
struct LookCounts {
  uint64_t threads = 0;   // that ran Python code
  uint64_t dropped = 0;   // what was read of them did not add up
  uint64_t partial = 0;   // frames came or went: the callers that stayed
};

struct OpenPython {
  // Neither set: it is no Python.
  std::unique_ptr<class PythonProcess> process;
  std::string problem;  // it is, but cannot be read: why
};

class PythonProcess {
 public:
  // `maps`: text of /proc/PID/maps. `exe`: link /proc/PID/exe.
  static OpenPython Open(Memory* memory, std::string_view maps,
                         std::string_view exe);

  // Of all its threads; appends to *out. What it returns besides kRead: the
  // process is not what it was, open it anew.
  Outcome Look(Places* places, std::vector<ThreadPlace>* out,
               LookCounts* counts);

  unsigned minor_version() const { return layout_.minor; }

 private:
  struct Code {
    uint64_t at = 0;
    std::string head;  // bytes of the object, as read
    uint64_t file_at = 0, name_at = 0, lines_at = 0;  // bytes of these
    std::string file, name, lines;                    // as in memory
    Place place;                                      // but for the line
    uint32_t units = 0;
    uint32_t first_line = 0;
    LineTable table;
  };
  struct Frame {
    uint64_t at = 0, previous = 0, instruction = 0;
    const Code* code = nullptr;
    std::array<char, 128> bytes, again;
  };
  struct Thread {
    uint64_t at = 0, next = 0, frame = 0, cframe = 0;
    uint32_t tid = 0;
  };

  PythonProcess(Memory* memory, uint64_t runtime, uint64_t code_type,
                const PythonLayout& layout);
  bool ReadThread(uint64_t at, uint64_t interpreter, Thread* thread);
  uint64_t ReadFirstFrame(const Thread& thread);
  // False: it does not add up.
  bool Walk(uint64_t frame);
  // How many of the innermost frames have changed meanwhile; all = nothing
  // holds.
  size_t Changed(const Thread& thread);
  const Code* CodeAt(uint64_t at);
  bool LoadText(uint64_t at, size_t most, uint64_t* data_at, std::string* raw,
                std::string* text);
  uint32_t LineOf(const Frame& frame, bool* known) const;
  void LookAt(Thread thread, uint64_t interpreter, Places* places,
              std::vector<ThreadPlace>* out, LookCounts* counts);

  Memory* memory_;
  uint64_t runtime_, code_type_;
  PythonLayout layout_;
  size_t code_head_bytes_ = 0, frame_bytes_ = 0;
  size_t thread_begin_ = 0, thread_bytes_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Code>> codes_;
  std::vector<Frame> frames_;  // of the walk, innermost first
  std::string again_;
  std::vector<Piece> pieces_;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_PYTHON_PROCESS_H_
