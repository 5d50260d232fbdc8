// SPDX-License-Identifier: Apache-2.0
#include "merge/code_ingest.h"

#include <algorithm>
#include <map>

#include "base/tables.h"
#include "merge/row_cursor.h"

namespace ingero::merge {
namespace {

using analysis::kNone;

constexpr Interval kAlways{Ns(INT64_MIN), Ns(INT64_MAX)};
// More places is damage: the sampler stops at a fraction of it.
constexpr size_t kMostPlaces = 1'000'000;
constexpr size_t kMostProblems = 64;
// How long one answer to "whose is this pid" holds.
constexpr Ns kAskAgain{1'000'000'000};

RowCursor Rows(const KernelStream& stream, const TableSchema& schema) {
  std::vector<BlockRef> blocks;
  for (const BlockRef& b : stream.blocks())
    if (b.table == schema.id) blocks.push_back(b);
  return RowCursor(schema, std::move(blocks), kAlways,
                   [&stream](const BlockRef& ref, std::string* bytes) {
                     return stream.Read(ref, bytes);
                   });
}

// The outermost CUDA call that each thread of a process is in.
class CallFollower {
 public:
  CallFollower(const TraceReader& trace, analysis::ProcessIndex process)
      : trace_(trace), calls_(trace.Calls(process, trace.span())) {
    more_ = calls_->Next(&next_);
  }
  // kNone: in none. REQUIRES: t does not go back
  analysis::FuncIndex At(analysis::ThreadIndex thread, Ns t) {
    while (more_ && next_.begin <= t) {
      Open& open = open_[next_.thread];
      if (trace_.functions()[next_.func].layer != analysis::Layer::kLibrary &&
          next_.begin >= open.end)
        open = {next_.end, next_.func};
      more_ = calls_->Next(&next_);
    }
    const auto it = open_.find(thread);
    return it == open_.end() || it->second.end <= t ? kNone : it->second.func;
  }

 private:
  struct Open {
    Ns end{INT64_MIN};
    analysis::FuncIndex func = kNone;
  };
  const TraceReader& trace_;
  std::unique_ptr<analysis::Cursor<analysis::Call>> calls_;
  analysis::Call next_;
  bool more_ = false;
  std::unordered_map<analysis::ThreadIndex, Open> open_;
};

uint64_t Key(analysis::ProcessIndex process, uint32_t tid) {
  return uint64_t{process} << 32 | tid;
}

}  // namespace

void CodeIngest::Learn(uint32_t first_line, Lives* lives) {
  {
    RowCursor places = Rows(*stream_, code_place_table::kSchema);
    while (places.Next() && lines_.size() < kMostPlaces) {
      using namespace code_place_table;
      const auto row = places.row();
      const auto [it, added] = line_of_.try_emplace(
          row[kPlace], first_line + static_cast<uint32_t>(lines_.size()));
      if (added && row[kLine] <= UINT32_MAX)
        lines_.push_back({static_cast<uint32_t>(row[kLine]), row[kFlags],
                          std::string(places.text())});
      else if (added)
        line_of_.erase(it);
    }
    damaged_ += places.damaged().size();
  }
  {
    RowCursor costs = Rows(*stream_, sample_table::kSchema);
    while (costs.Next()) {
      const auto row = costs.row();
      if (row[sample_table::kMetric] ==
              static_cast<uint64_t>(Metric::kCodeProblem) &&
          problems_.size() < kMostProblems)
        problems_.push_back(
            {lives->ForPid(stream_->header().pid_namespace,
                           static_cast<uint32_t>(row[sample_table::kInstance]),
                           Ns(costs.time())),
             std::string(costs.text())});
      if (row[sample_table::kMetric] !=
          static_cast<uint64_t>(Metric::kCodeCpuNs))
        continue;
      cpu_ns_ = row[sample_table::kValue];
      hz_ = row[sample_table::kInstance];
    }
    damaged_ += costs.damaged().size();
  }
  {
    RowCursor losses = Rows(*stream_, loss_table::kSchema);
    while (losses.Next()) {
      using namespace loss_table;
      const auto row = losses.row();
      losses_.push_back({row[kT], row[kEndT], row[kLoss], row[kCountLost]});
    }
    damaged_ += losses.damaged().size();
  }
  RowCursor samples = Rows(*stream_, code_read_table::kSchema);
  std::unordered_map<uint32_t, Ns> asked;
  while (samples.Next()) {
    using namespace code_read_table;
    const auto row = samples.row();
    const Ns t(samples.time());
    const auto pid = static_cast<uint32_t>(row[kPid]);
    const auto tid = static_cast<uint32_t>(row[kTid]);
    std::vector<Life>& of_pid = lives_[pid];
    const auto [when, first] = asked.try_emplace(pid, t);
    if (first || t - when->second >= kAskAgain) {
      when->second = t;
      const analysis::ProcessIndex process =
          lives->ForPid(stream_->header().pid_namespace, pid, t);
      if (of_pid.empty() || of_pid.back().process != process)
        of_pid.push_back({t, process});
    }
    const analysis::ProcessIndex process = of_pid.back().process;
    if (process == kNone || !line_of_.contains(row[kPlace]) ||
        !line_of_.contains(row[kInnermost]))
      continue;
    ++samples_;
    std::vector<ThreadLife>& of_tid = threads_[Key(process, tid)];
    const uint32_t known =
        lives->threads()[lives->ForStreamThread(process, tid, t)].tid;
    if (of_tid.empty() || of_tid.back().tid != known)
      of_tid.push_back({t, known});
  }
  damaged_ += samples.damaged().size();
}

const CodeIngest::Life* CodeIngest::LifeAt(uint32_t pid, Ns t) const {
  const auto of_pid = lives_.find(pid);
  if (of_pid == lives_.end()) return nullptr;
  for (auto life = of_pid->second.rbegin(); life != of_pid->second.rend();
       ++life)
    if (life->from <= t) return &*life;
  return nullptr;
}

void CodeIngest::Write(const TraceReader& trace, const Put& put) const {
  RowCursor samples = Rows(*stream_, code_read_table::kSchema);
  std::map<analysis::ProcessIndex, CallFollower> calls;
  while (samples.Next()) {
    using namespace code_read_table;
    const auto row = samples.row();
    const Ns t(samples.time());
    const Life* life = LifeAt(static_cast<uint32_t>(row[kPid]), t);
    const auto place = line_of_.find(row[kPlace]);
    const auto innermost = line_of_.find(row[kInnermost]);
    if (life == nullptr || life->process == kNone || place == line_of_.end() ||
        innermost == line_of_.end())
      continue;
    const analysis::ProcessIndex process = life->process;
    const auto of_tid =
        threads_.find(Key(process, static_cast<uint32_t>(row[kTid])));
    if (of_tid == threads_.end()) continue;
    uint32_t tid = of_tid->second.front().tid;
    for (const ThreadLife& thread : of_tid->second)
      if (thread.from <= t) tid = thread.tid;
    analysis::FuncIndex func = kNone;
    if (trace.processes()[process].has_cuda)
      func = calls.try_emplace(process, trace, process)
                 .first->second.At(trace.ThreadOfCall(process, tid, t.value),
                                   t);
    const uint64_t out[] = {static_cast<uint64_t>(t.value),
                            tid,
                            place->second,
                            innermost->second,
                            row[kKind],
                            row[kState],
                            func == kNone ? 0 : uint64_t{func} + 1};
    static_assert(std::size(out) == code_table::kCount);
    put(process, out);
  }
}

}  // namespace ingero::merge
