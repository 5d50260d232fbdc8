// SPDX-License-Identifier: Apache-2.0
#include "merge/block_queue.h"

#include <blockingconcurrentqueue.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <new>
#include <numeric>
#include <semaphore>
#include <system_error>
#include <thread>
#include <vector>

namespace ingero::merge {

struct BlockQueue::Item {
  Rows rows;          // to be coded, or
  std::string block;  // coded
  uint32_t owner = 0;
  Prepare prepare = nullptr;
  std::promise<Status>* flushed = nullptr;  // commit all, then tell
  bool stop = false;
};

struct BlockQueue::Shared {
  moodycamel::BlockingConcurrentQueue<Item> items;
  moodycamel::ConcurrentQueue<Rows> spares;
  std::counting_semaphore<> room{kMaxItems};
  std::atomic<bool> failed{false};
  std::atomic<bool> stopping{false};
  Status failure;  // written before `failed`
  std::thread thread;
};

BlockQueue::BlockQueue(Put put, Commit commit)
    : put_(std::move(put)),
      commit_(std::move(commit)),
      shared_(std::make_unique<Shared>()) {}

Result<std::unique_ptr<BlockQueue>> BlockQueue::Start(Put put, Commit commit) {
  std::unique_ptr<BlockQueue> queue(
      new BlockQueue(std::move(put), std::move(commit)));
  try {
    queue->shared_->thread = std::thread([q = queue.get()] { q->Run(); });
  } catch (const std::system_error& e) {
    return Status::Errno("start a thread", e.code().value());
  }
  return queue;
}

BlockQueue::~BlockQueue() {
  if (!shared_->thread.joinable()) return;
  shared_->stopping.store(true, std::memory_order_relaxed);
  Item stop;
  stop.stop = true;
  shared_->items.enqueue(std::move(stop));
  shared_->thread.join();
}

Status BlockQueue::Push(Item item) {
  shared_->room.acquire();
  if (shared_->failed.load(std::memory_order_acquire)) {
    shared_->room.release();
    return shared_->failure;
  }
  shared_->items.enqueue(std::move(item));
  return {};
}

void BlockQueue::Run() {
  Item item;
  while (true) {
    shared_->items.wait_dequeue(item);
    if (item.stop) return;
    // After a failure the rest is only taken off the queue.
    Status s;
    if (shared_->failed) {
      s = shared_->failure;
    } else if (!shared_->stopping.load(std::memory_order_relaxed)) {
      try {
        s = Take(&item);
      } catch (const std::bad_alloc&) {
        s = Status::Error("out of memory");
      }
    }
    if (!s.ok() && !shared_->failed) {
      shared_->failure = s;
      shared_->failed.store(true, std::memory_order_release);
    }
    shared_->room.release();
    if (item.flushed != nullptr) item.flushed->set_value(std::move(s));
  }
}

Status BlockQueue::Take(Item* item) {
  if (item->flushed != nullptr) return commit_();
  if (item->rows.size() == 0) return put_(std::move(item->block));
  if (item->prepare != nullptr) item->prepare(&item->rows);
  std::string block;
  EncodeBlock(item->rows, item->owner, &block, Effort::kKeep);
  item->rows.Clear();
  shared_->spares.enqueue(std::move(item->rows));
  return put_(std::move(block));
}

Status BlockQueue::PutBlock(std::string block) {
  Item item;
  item.block = std::move(block);
  return Push(std::move(item));
}

Status BlockQueue::PutRows(Rows* rows, uint32_t owner, Prepare prepare) {
  if (rows->size() == 0) return {};
  Item item;
  item.owner = owner;
  item.prepare = prepare;
  item.rows.schema = rows->schema;
  if (Rows spare; shared_->spares.try_dequeue(spare)) {
    item.rows.values = std::move(spare.values);
    item.rows.texts = std::move(spare.texts);
  }
  std::swap(item.rows, *rows);
  return Push(std::move(item));
}

Status BlockQueue::Flush() {
  std::promise<Status> flushed;
  Item item;
  item.flushed = &flushed;
  INGERO_RETURN_IF_ERROR(Push(std::move(item)));
  return flushed.get_future().get();
}

namespace {

template <typename Before>
void SortRows(Rows* rows, Before before) {
  const size_t count = rows->size();
  bool sorted = true;
  for (size_t r = 1; sorted && r < count; ++r) sorted = !before(r, r - 1);
  if (sorted) return;
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), before);
  // Kept from block to block: memory that is new to a process costs more than
  // the copy.
  thread_local Rows out;
  out.schema = rows->schema;
  out.Clear();
  for (uint32_t r : order)
    out.Append(rows->row(r), rows->schema->has_text ? rows->texts[r] : "");
  std::swap(*rows, out);
}

int64_t TimeOf(const Rows& rows, size_t r) {
  return static_cast<int64_t>(rows.at(r, 0));
}

}  // namespace

void SortByTime(Rows* rows) {
  SortRows(rows, [rows](size_t a, size_t b) {
    return TimeOf(*rows, a) < TimeOf(*rows, b);
  });
}

void SortByTimeAnd(Rows* rows, size_t column) {
  SortRows(rows, [rows, column](size_t a, size_t b) {
    const int64_t x = TimeOf(*rows, a), y = TimeOf(*rows, b);
    return x != y ? x < y : rows->at(a, column) < rows->at(b, column);
  });
}

}  // namespace ingero::merge
