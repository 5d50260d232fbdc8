// SPDX-License-Identifier: Apache-2.0
// Stream files made by code, as the recorders would have written them: tests
// of everything behind the recorders need neither a GPU nor eBPF.
//
// Ticks are ns unless a test sets header.clock and adds knots.
#ifndef INGERO_TESTS_SUPPORT_STREAM_BUILDER_H_
#define INGERO_TESTS_SUPPORT_STREAM_BUILDER_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::testing {

// Boot of all built streams.
void FillBoot(ingero_stream_header* header);

// A folder under the test's temporary directory, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

class CudaStreamBuilder {
 public:
  // A process with this pid that was started at `start_ns` (boot clock) and
  // made its first call at `created_ns`.
  CudaStreamBuilder(uint32_t pid, int64_t created_ns, uint64_t start_ns = 0);

  ingero_stream_header header;  // free to change before Bytes()
  bool checked = true;          // false: as version 1.0, without CRCs

  struct CallSpec {
    uint64_t start = 0, duration = 0;
    uint8_t depth = 0, flags = 0;
    uint16_t result = 0;
    std::vector<uint64_t> words;
  };
  // All of a thread's records go to its slot, made with its first record.
  void Thread(uint32_t tid, const std::string& comm);
  void Name(uint16_t func, const std::string& name, int layer, int call_class,
            std::vector<uint8_t> words = {});
  void Kernel(uint64_t kernel, const std::string& name);
  void Call(uint32_t tid, uint16_t func, const CallSpec& call);
  void Call(uint32_t tid, uint16_t func, uint64_t start, uint64_t duration) {
    CallSpec spec;
    spec.start = start;
    spec.duration = duration;
    Call(tid, func, spec);
  }
  void Knot(uint32_t tid, uint64_t ticks, uint64_t mono_ns, uint32_t window);
  void Loss(uint32_t tid, uint32_t loss, uint64_t count, uint64_t first,
            uint64_t last);
  void Coverage(uint16_t way, const std::string& text, uint64_t count,
                uint16_t detail = 0);
  void Process(const std::string& exe, const std::string& cmdline);
  void Raw(uint32_t tid, const std::string& record);
  void InFlight(uint32_t tid, uint8_t depth, uint16_t func, uint64_t start);
  // What a thread does with a full slot: DATA block, then reset. keep_live
  // leaves the records in the slot too, as between the two steps.
  void WriteOut(uint32_t tid, bool keep_live = false);
  // The slot's thread ended; `tid` takes it over.
  void Reuse(uint32_t old_tid, uint32_t tid, const std::string& comm);

  std::string Bytes() const;
  void Write(const std::string& path) const { WriteFile(path, Bytes()); }

 private:
  struct Slot {
    uint32_t block = 0, sequence = 0, tid = 0;
    std::string records;
    std::map<uint8_t, ingero_inflight> inflight;
  };
  Slot& SlotOf(uint32_t tid);
  void Append(uint32_t tid, std::string record);

  std::map<uint32_t, Slot> slots_;  // by tid
  std::map<uint32_t, std::string> data_;  // by block index
  uint32_t next_block_ = 1;
};

class KernelStreamBuilder {
 public:
  explicit KernelStreamBuilder(int64_t created_ns);

  ingero_stream_header header;

  struct SwitchSpec {
    uint64_t t = 0;
    uint32_t prev_tid = 0, prev_tgid = 0, next_tid = 0, next_tgid = 0;
    uint64_t flags = 0, prev_state = 0;
    int prev_syscall = -1;
    uint64_t wake = 0;
    uint32_t waker_tid = 0, waker_tgid = 0;
    uint64_t pages = 0, kernel_us = 0, throttled_ns = 0;
  };
  struct TaskSpec {
    uint64_t t = 0;
    ingero_task_event event = INGERO_TASK_EVENT_EXISTING;
    uint32_t tid = 0, tgid = 0, parent_tgid = 0;
    uint64_t start_ns = 0;
    uint32_t ns_tid = 0, ns_tgid = 0;
    uint64_t pid_namespace = 4026531836;
    int64_t code = 0;
    std::string text = {};
    uint64_t cgroup_id = 1;
  };
  void Switch(uint32_t cpu, const SwitchSpec& s);
  void Task(const TaskSpec& t);
  void Sample(uint64_t t, Metric metric, uint64_t instance, uint64_t value,
              const std::string& text = "");
  void Knot(uint64_t mono_ns, uint64_t tsc, uint64_t window);
  void Loss(uint32_t cpu, uint64_t t, uint64_t end, uint64_t loss,
            uint64_t count);
  // Of any table.
  void Row(const TableSchema& schema, uint32_t owner,
           std::initializer_list<uint64_t> row, const std::string& text = "") {
    RowsOf(schema, owner).Append({row.begin(), row.size()}, text);
  }
  // Rows so far become blocks, as the companion writes them once a second.
  void Flush();

  std::string Bytes();
  void Write(const std::string& path) { WriteFile(path, Bytes()); }

 private:
  Rows& RowsOf(const TableSchema& schema, uint32_t owner);
  std::map<std::pair<uint16_t, uint32_t>, Rows> rows_;
  std::string blocks_;
};

}  // namespace ingero::testing

#endif  // INGERO_TESTS_SUPPORT_STREAM_BUILDER_H_
