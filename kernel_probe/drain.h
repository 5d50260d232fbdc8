// SPDX-License-Identifier: Apache-2.0
// Empties the rings: switches and allocations become rows per CPU, task events
// go to a callback. No system call per record, no wait, no disk.
//
// Threads:    one.
// Invariants: recorded() + dropped() = records taken from the rings.
#ifndef INGERO_KERNEL_PROBE_DRAIN_H_
#define INGERO_KERNEL_PROBE_DRAIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/tables.h"
#include "kernel_probe/loader.h"
#include "kernel_probe/losses.h"
#include "kernel_probe/stream_writer.h"
#include "kernel_probe/switch_ring.h"
#include "wire/wire.h"

struct ring_buffer;

namespace ingero::kernel_probe {

// A switch as its row of switch_table.
void AppendSwitch(const ingero_ring_switch& e,
                  const ingero_ring_switch_more& more,
                  std::vector<uint64_t>* values);

class Drain {
 public:
  static constexpr size_t kBlockRows = 4096;

  // `loader` and *writer must outlive this.
  static Result<std::unique_ptr<Drain>> Make(
      const Loader& loader, StreamWriter* writer,
      std::function<void(const ingero_ring_task&)> on_task,
      std::function<void(const Loss&)> on_loss);
  ~Drain();
  Drain(const Drain&) = delete;

  // Takes all there is. How full the fullest ring was, 0 to 1.
  double Consume();
  // Hands over rows of blocks that are not full.
  void Flush();

  uint64_t recorded() const { return recorded_; }
  uint64_t dropped() const { return dropped_; }  // writer behind
  // Of the switches taken: to a thread that was woken; pages of who left.
  uint64_t wakes() const { return wakes_; }
  uint64_t pages() const { return pages_; }

 private:
  struct Cpu {
    Drain* drain;
    uint32_t cpu;
    SwitchRing ring;
    Rows rows, allocations;
    uint64_t allocations_taken = 0;  // within one Consume()
  };
  Drain() = default;
  static int OnPages(void* cpu, void* data, size_t size);
  static int OnTask(void* drain, void* data, size_t size);
  // `rows`: one of the CPU's.
  void HandOver(Cpu* cpu, Rows* rows);

  StreamWriter* writer_ = nullptr;
  std::function<void(const ingero_ring_task&)> on_task_;
  std::function<void(const Loss&)> on_loss_;
  ring_buffer* rings_ = nullptr;
  std::vector<Cpu> cpus_;
  double ring_slots_ = 1;
  uint64_t recorded_ = 0, dropped_ = 0;
  uint64_t wakes_ = 0, pages_ = 0;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_DRAIN_H_
