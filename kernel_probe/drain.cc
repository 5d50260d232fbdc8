// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/drain.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>

namespace ingero::kernel_probe {

void AppendSwitch(const ingero_ring_switch& e,
                  const ingero_ring_switch_more& more,
                  std::vector<uint64_t>* values) {
  // In the order of switch_table::Col.
  const uint64_t row[] = {e.t_ns,
                          e.prev_tid,
                          e.prev_tgid,
                          e.next_tid,
                          e.next_tgid,
                          e.flags,
                          e.prev_state,
                          static_cast<uint64_t>(e.prev_syscall + 1),
                          e.prev_arg0,
                          e.prev_arg1,
                          e.wake_ns,
                          e.waker_tid,
                          e.waker_tgid,
                          more.prev_pages,
                          more.prev_large_allocs,
                          more.prev_min_faults,
                          more.prev_maj_faults,
                          more.prev_kernel_us,
                          more.next_throttled_ns};
  static_assert(std::size(row) == switch_table::kCount);
  values->insert(values->end(), std::begin(row), std::end(row));
}

Result<std::unique_ptr<Drain>> Drain::Make(
    const Loader& loader, StreamWriter* writer,
    std::function<void(const ingero_ring_task&)> on_task,
    std::function<void(const Loss&)> on_loss) {
  std::unique_ptr<Drain> d(new Drain);
  d->writer_ = writer;
  d->on_task_ = std::move(on_task);
  d->on_loss_ = std::move(on_loss);
  const uint32_t slots = loader.ring_slots();
  d->ring_slots_ = slots;
  const auto cpus = static_cast<uint32_t>(loader.cpus());
  d->cpus_.reserve(cpus);  // rings point to them
  d->rings_ = ring_buffer__new(loader.task_ring_fd(), OnTask, d.get(), nullptr);
  if (d->rings_ == nullptr) return Status::Errno("mapping a ring", errno);
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    Cpu& c = d->cpus_.emplace_back(
        Cpu{d.get(), cpu,
            SwitchRing(loader.switch_slots() + size_t{cpu} * slots, slots,
                       loader.cpu_states() + cpu),
            {}, {}});
    c.rows.schema = &switch_table::kSchema;
    c.allocations.schema = &allocation_table::kSchema;
    if (loader.page_ring_fds().empty()) continue;
    if (const int error = ring_buffer__add(
            d->rings_, loader.page_ring_fds()[cpu], OnPages, &c))
      return Status::Errno("mapping a ring", -error);
  }
  return d;
}

Drain::~Drain() { ring_buffer__free(rings_); }

int Drain::OnTask(void* context, void* data, size_t) {
  static_cast<Drain*>(context)->on_task_(
      *static_cast<const ingero_ring_task*>(data));
  return 0;
}

int Drain::OnPages(void* context, void* data, size_t) {
  Cpu& c = *static_cast<Cpu*>(context);
  const auto& e = *static_cast<const ingero_ring_pages*>(data);
  Rows& rows = c.allocations;
  // One in an interrupt, between another's time and its place in the ring.
  const uint64_t before = rows.size() == 0 ? 0 : rows.at(rows.size() - 1, 0);
  // In the order of allocation_table::Col.
  const uint64_t row[] = {std::max<uint64_t>(e.t_ns, before), e.tid, e.tgid,
                          e.order};
  static_assert(std::size(row) == allocation_table::kCount);
  rows.values.insert(rows.values.end(), std::begin(row), std::end(row));
  ++c.allocations_taken;
  if (rows.values.size() >= kBlockRows * allocation_table::kCount)
    c.drain->HandOver(&c, &rows);
  return 0;
}

void Drain::HandOver(Cpu* c, Rows* rows) {
  const size_t count = rows->size();
  if (count == 0) return;
  const TableSchema* schema = rows->schema;
  const uint64_t first = rows->at(0, 0), last = rows->at(count - 1, 0);
  if (writer_->Push(rows, c->cpu)) {
    if (schema == &switch_table::kSchema) recorded_ += count;
    *rows = writer_->Spare(*schema);
    return;
  }
  dropped_ += count;
  on_loss_({c->cpu, INGERO_LOSS_WRITER_BEHIND, first, last, count});
  rows->Clear();
  rows->schema = schema;
}

double Drain::Consume() {
  ring_buffer__consume(rings_);
  double fullest = 0;
  for (Cpu& c : cpus_) {
    const uint32_t slots = c.ring.Take(
        [&](const ingero_ring_switch& e, const ingero_ring_switch_more& more) {
          AppendSwitch(e, more, &c.rows.values);
          wakes_ += e.wake_ns != 0;
          pages_ += more.prev_pages;
          if (c.rows.values.size() >= kBlockRows * switch_table::kCount)
            HandOver(&c, &c.rows);
        });
    // An allocation takes half as much of its ring as a switch of its.
    fullest = std::max(
        {fullest, slots / ring_slots_,
         static_cast<double>(c.allocations_taken) / 2 / ring_slots_});
    c.allocations_taken = 0;
  }
  return fullest;
}

void Drain::Flush() {
  for (Cpu& c : cpus_) {
    HandOver(&c, &c.rows);
    HandOver(&c, &c.allocations);
  }
}

}  // namespace ingero::kernel_probe
