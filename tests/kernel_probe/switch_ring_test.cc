// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/switch_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ingero::kernel_probe {
namespace {

// What bpf/sched.bpf.c does.
class Writer {
 public:
  explicit Writer(uint32_t slots) : slots_(slots) {}
  // False: no room. Every third record has a second slot.
  bool Write(uint64_t t) {
    const bool more = t % 3 == 0;
    const uint64_t tail = __atomic_load_n(&state.tail, __ATOMIC_ACQUIRE);
    if (state.head + more - tail >= slots_.size()) return false;
    ingero_ring_switch& e = At(state.head);
    e.kind = more ? INGERO_RING_SWITCH_MORE : INGERO_RING_SWITCH;
    e.t_ns = t;
    if (more)
      reinterpret_cast<ingero_ring_switch_more&>(At(state.head + 1))
          .next_throttled_ns = t + 1;
    __atomic_store_n(&state.head, state.head + 1 + more, __ATOMIC_RELEASE);
    return true;
  }
  SwitchRing Reader() {
    return SwitchRing(slots_.data(), static_cast<uint32_t>(slots_.size()),
                      &state);
  }

  ingero_cpu_state state{};

 private:
  ingero_ring_switch& At(uint64_t at) {
    return slots_[at & (slots_.size() - 1)];
  }
  std::vector<ingero_ring_switch> slots_;
};

TEST(SwitchRing, GivesAllOnceInOrderAlsoAcrossTheEnd) {
  Writer writer(4);
  SwitchRing reader = writer.Reader();
  std::vector<uint64_t> got;
  uint32_t slots = 0;
  const auto take = [&] {
    slots += reader.Take([&](const ingero_ring_switch& e,
                             const ingero_ring_switch_more& more) {
      got.push_back(e.t_ns);
      EXPECT_EQ(more.next_throttled_ns, e.t_ns % 3 == 0 ? e.t_ns + 1 : 0);
    });
  };
  take();
  EXPECT_TRUE(got.empty());
  std::vector<uint64_t> wanted;
  uint32_t lost = 0;
  for (uint64_t t = 1; t <= 30; ++t) {
    if (writer.Write(t))
      wanted.push_back(t);
    else
      ++lost;
    if (t % 4 == 0) take();
  }
  take();
  EXPECT_EQ(got, wanted);
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(slots, writer.state.head);
  EXPECT_EQ(writer.state.tail, writer.state.head);
}

TEST(SwitchRing, AWriterBesideItLosesOnlyWhatItCounts) {
  Writer writer(64);
  SwitchRing reader = writer.Reader();
  constexpr uint64_t kRecords = 2'000'000;
  uint64_t lost = 0;
  std::atomic<bool> done{false};
  std::thread thread([&] {
    for (uint64_t t = 1; t <= kRecords; ++t) lost += !writer.Write(t);
    done = true;
  });
  uint64_t taken = 0, last = 0, wrong = 0;
  for (bool more = true; more;) {
    more = !done;
    while (reader.Take([&](const ingero_ring_switch& e,
                           const ingero_ring_switch_more& rest) {
      wrong += e.t_ns <= last;
      wrong += rest.next_throttled_ns != (e.t_ns % 3 == 0 ? e.t_ns + 1 : 0);
      last = e.t_ns;
      ++taken;
    }) > 0)
      continue;
  }
  thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(taken + lost, kRecords);
  EXPECT_GT(taken, 0u);
}

}  // namespace
}  // namespace ingero::kernel_probe
