// SPDX-License-Identifier: Apache-2.0
// How a worker hands batches to the trainer: a pipe, or shared memory with
// futexes. Both bound how far the worker may run ahead, as a DataLoader's
// prefetch factor does.
#ifndef INGERO_TESTS_TRUTH_BATCH_CHANNEL_H_
#define INGERO_TESTS_TRUTH_BATCH_CHANNEL_H_

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <memory>

#include "sim_util.h"

namespace sim {

// Create before fork. One producer process, one consumer process.
class BatchChannel {
 public:
  virtual ~BatchChannel() = default;
  // Worker: a batch is ready; waits for room. False: the trainer has closed.
  virtual bool Put() = 0;
  virtual bool Take() = 0;  // trainer: waits for a batch; false: worker gone
  virtual void WorkerSide() {}   // after fork
  virtual void TrainerSide() {}  // after fork
  virtual void Close() {}        // trainer: no more batches
};

class PipeChannel : public BatchChannel {
 public:
  explicit PipeChannel(int prefetch) {
    if (pipe(data_) != 0 || pipe(credit_) != 0) {
      Die("cannot make a pipe");
    }
    for (int i = 0; i < prefetch; i++) {
      Write(credit_[1], "c", 1);
    }
  }
  bool Put() override {
    char c;
    if (!Read(credit_[0], &c, 1)) {
      return false;
    }
    static const char batch[4096] = {};
    Write(data_[1], batch, sizeof batch);
    return true;
  }
  bool Take() override {
    char batch[4096];
    if (!Read(data_[0], batch, sizeof batch)) {
      return false;
    }
    Write(credit_[1], "c", 1);
    return true;
  }
  void WorkerSide() override {
    close(data_[0]);
    close(credit_[1]);
  }
  void TrainerSide() override {
    close(data_[1]);
    close(credit_[0]);
  }
  void Close() override { WorkerSide(); }

 private:
  static bool Read(int fd, char* p, size_t n) {
    while (n > 0) {
      ssize_t r = read(fd, p, n);
      if (r <= 0) {
        if (r < 0 && errno == EINTR) {
          continue;
        }
        return false;
      }
      p += r;
      n -= static_cast<size_t>(r);
    }
    return true;
  }
  static void Write(int fd, const char* p, size_t n) {
    while (n > 0) {
      ssize_t w = write(fd, p, n);
      if (w < 0) {
        if (errno == EINTR) {
          continue;
        }
        return;  // the other side has ended
      }
      p += w;
      n -= static_cast<size_t>(w);
    }
  }
  int data_[2], credit_[2];
};

class FutexChannel : public BatchChannel {
 public:
  explicit FutexChannel(int prefetch) {
    void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      Die("cannot map shared memory");
    }
    shared_ = static_cast<Shared*>(p);
    shared_->credits = static_cast<uint32_t>(prefetch);
  }
  ~FutexChannel() override { munmap(shared_, 4096); }
  bool Put() override {
    Down(&shared_->credits);
    Up(&shared_->ready);
    return true;
  }
  bool Take() override {
    Down(&shared_->ready);
    Up(&shared_->credits);
    return true;
  }

 private:
  struct Shared {
    std::atomic<uint32_t> credits;
    alignas(64) std::atomic<uint32_t> ready;
  };
  static void Down(std::atomic<uint32_t>* a) {
    for (;;) {
      uint32_t n = a->load();
      if (n > 0 && a->compare_exchange_weak(n, n - 1)) {
        return;
      }
      if (n == 0) {
        syscall(SYS_futex, a, FUTEX_WAIT, 0, nullptr, nullptr, 0);
      }
    }
  }
  static void Up(std::atomic<uint32_t>* a) {
    if (a->fetch_add(1) == 0) {
      syscall(SYS_futex, a, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }
  Shared* shared_;
};

inline std::unique_ptr<BatchChannel> MakeChannel(bool futex, int prefetch) {
  if (futex) {
    return std::make_unique<FutexChannel>(prefetch);
  }
  return std::make_unique<PipeChannel>(prefetch);
}

}  // namespace sim

#endif  // INGERO_TESTS_TRUTH_BATCH_CHANNEL_H_
