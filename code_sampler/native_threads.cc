// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/native_threads.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace ingero::code_sampler {
namespace {

constexpr size_t kPage = 4096, kDataPages = 4;
constexpr size_t kDataBytes = kDataPages * kPage;

// PERF_RECORD_SAMPLE with what `attr` asks for, in this order.
struct SampleRecord {
  perf_event_header header;
  uint64_t ip;
  uint32_t pid, tid;
  uint64_t t;
};
struct LostRecord {
  perf_event_header header;
  uint64_t id, lost;
};

int Open(uint32_t tid, unsigned hz) {
  perf_event_attr attr = {};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_TASK_CLOCK;
  attr.sample_freq = hz;
  attr.freq = 1;
  attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
  attr.watermark = 1;  // nobody is woken: rings are looked at
  attr.wakeup_watermark = kDataBytes;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr,
                                  static_cast<pid_t>(tid), -1, -1,
                                  PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

NativeThreads::~NativeThreads() {
  for (auto& [key, ring] : rings_)
    munmap(ring.pages, kPage + kDataBytes);
}

std::string NativeThreads::Follow(uint32_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()),
                                                closedir);
  if (dir == nullptr) return "";  // it has ended
  while (const dirent* entry = readdir(dir.get())) {
    char* end;
    const auto tid = static_cast<uint32_t>(strtoul(entry->d_name, &end, 10));
    if (*end != '\0' || tid == 0 || rings_.contains({pid, tid})) continue;
    if (rings_.size() >= kMostNativeThreads) {
      ++lost_;
      continue;
    }
    Ring ring;
    ring.event = Fd(Open(tid, hz_));
    if (!ring.event.valid()) {
      if (errno == ESRCH) continue;
      if (errno == EACCES || errno == EPERM)
        return "its native functions cannot be sampled: the kernel allows "
               "perf events to root, and to others where "
               "kernel.perf_event_paranoid is 2 or less";
      return std::string("its native functions cannot be sampled: ") +
             strerror(errno);
    }
    ring.pages = mmap(nullptr, kPage + kDataBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED, ring.event.get(), 0);
    if (ring.pages == MAP_FAILED) {
      // The rest is as many as kernel.perf_event_mlock_kb lets this user have.
      if (errno == EPERM || errno == ENOMEM) {
        ++lost_;
        continue;
      }
      return std::string("its native functions cannot be sampled: ") +
             strerror(errno);
    }
    rings_.emplace(std::pair(pid, tid), std::move(ring));
  }
  return "";
}

void NativeThreads::Read(Ring* ring, std::vector<NativeSample>* samples) {
  auto* page = static_cast<perf_event_mmap_page*>(ring->pages);
  const auto* data = static_cast<const char*>(ring->pages) + kPage;
  const uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
  uint64_t tail = page->data_tail;
  const auto copy = [&](uint64_t at, void* to, size_t bytes) {
    const size_t from = at % kDataBytes, first = std::min(bytes, kDataBytes - from);
    std::memcpy(to, data + from, first);
    std::memcpy(static_cast<char*>(to) + first, data, bytes - first);
  };
  while (tail < head) {
    perf_event_header header;
    copy(tail, &header, sizeof(header));
    if (header.size < sizeof(header)) break;  // not what a kernel writes
    if (header.type == PERF_RECORD_SAMPLE && header.size >= sizeof(SampleRecord)) {
      SampleRecord r;
      copy(tail, &r, sizeof(r));
      samples->push_back({r.pid, r.tid, static_cast<int64_t>(r.t), r.ip});
    } else if (header.type == PERF_RECORD_LOST &&
               header.size >= sizeof(LostRecord)) {
      LostRecord r;
      copy(tail, &r, sizeof(r));
      lost_ += r.lost;
    }
    tail += header.size;
  }
  __atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
}

void NativeThreads::Drain(std::vector<NativeSample>* samples) {
  std::vector<pollfd> events;
  events.reserve(rings_.size());
  for (const auto& [key, ring] : rings_)
    events.push_back({ring.event.get(), POLLIN, 0});
  if (events.empty() || poll(events.data(), events.size(), 0) < 0) return;
  auto event = events.begin();
  for (auto it = rings_.begin(); it != rings_.end(); ++event) {
    const size_t before = samples->size();
    Read(&it->second, samples);
    // The record's ids are those of this pid namespace; keep the caller's.
    for (size_t i = before; i < samples->size(); ++i) {
      (*samples)[i].pid = it->first.first;
      (*samples)[i].tid = it->first.second;
    }
    if ((event->revents & POLLHUP) == 0) {
      ++it;
      continue;
    }
    munmap(it->second.pages, kPage + kDataBytes);
    it = rings_.erase(it);
  }
}

uint64_t NativeThreads::TakeLost() {
  const uint64_t lost = lost_;
  lost_ = 0;
  return lost;
}

}  // namespace ingero::code_sampler
