// SPDX-License-Identifier: Apache-2.0
// Values made ahead of their use, by threads of their own, and handed out in
// order: what comes out does not depend on how many threads there are.
//
// Memory: `room` values, made or being made. They are reused, so that their
// buffers are.
//
// Threads: Next() is for one thread, which also constructs and destroys.
// `make` runs on the others; with one of them, or none, in order. An exception
// in it (no memory) comes out of Next().
#ifndef INGERO_MERGE_AHEAD_H_
#define INGERO_MERGE_AHEAD_H_

#include <blockingconcurrentqueue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <system_error>
#include <thread>
#include <vector>

namespace ingero::merge {

template <typename T>
class Ahead {
 public:
  // make(i, &value): value i; false where there is none, nor any after it.
  using Make = std::function<bool(uint64_t, T*)>;

  // threads = 0, or a system that gives none: Next() makes the value itself.
  Ahead(size_t threads, size_t room, Make make)
      : make_(std::move(make)), slots_(threads == 0 ? 1 : room) {
    for (auto& slot : slots_) slot = std::make_unique<Slot>();
    try {
      while (threads_.size() < threads)
        threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
    }
    if (!threads_.empty())
      for (uint64_t i = 0; i < slots_.size(); ++i) wanted_.enqueue(i);
  }
  // Waits for the values that are being made.
  ~Ahead() {
    stop_.store(true, std::memory_order_relaxed);
    for (size_t i = 0; i < threads_.size(); ++i) wanted_.enqueue(kStop);
    for (std::thread& t : threads_) t.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  // The next value, or nullptr after the last. It may be changed, and lives
  // until the next call.
  T* Next() {
    if (ended_) return nullptr;
    Slot& slot = *slots_[next_ % slots_.size()];
    if (threads_.empty()) {
      ended_ = !make_(next_, &slot.value);
    } else {
      if (next_ > 0) wanted_.enqueue(next_ - 1 + slots_.size());
      slot.made.acquire();
      if (slot.error) {
        ended_ = true;
        std::rethrow_exception(slot.error);
      }
      ended_ = !slot.any;
    }
    ++next_;
    return ended_ ? nullptr : &slot.value;
  }

 private:
  static constexpr uint64_t kStop = UINT64_MAX;
  struct Slot {
    T value{};
    bool any = false;
    std::exception_ptr error;
    std::binary_semaphore made{0};
  };

  void Run() {
    while (true) {
      uint64_t i;
      wanted_.wait_dequeue(i);
      if (i == kStop) return;
      if (stop_.load(std::memory_order_relaxed)) continue;
      Slot& slot = *slots_[i % slots_.size()];
      try {
        slot.any = make_(i, &slot.value);
      } catch (...) {
        slot.error = std::current_exception();
      }
      slot.made.release();
    }
  }

  Make make_;
  std::vector<std::unique_ptr<Slot>> slots_;  // value i is in slot i % size
  moodycamel::BlockingConcurrentQueue<uint64_t> wanted_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
  uint64_t next_ = 0;
  bool ended_ = false;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_AHEAD_H_
