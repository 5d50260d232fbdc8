// SPDX-License-Identifier: Apache-2.0
#include "merge/nvtx.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/histogram.h"
#include "base/tables.h"
#include "merge/trace_reader.h"
#include "wire/wire.h"

namespace ingero::merge {

std::vector<NvtxSummary> SummarizeNvtx(const TraceReader& reader,
                                       Interval window) {
  struct Totals {
    uint64_t count = 0, total = 0, max = 0;
    Histogram histogram;
  };
  std::map<std::tuple<uint32_t, bool, bool, std::string>, Totals> totals;
  // Ranges may begin before the first event of the span.
  if (window.begin <= reader.span().begin) window.begin = Ns(INT64_MIN);
  if (window.end >= reader.span().end) window.end = Ns(INT64_MAX);
  const auto blocks = reader.file().Table(nvtx_table::kSchema.id);
  auto rows = reader.Cursor(nvtx_table::kSchema, blocks, window);
  while (rows->Next()) {
    using namespace nvtx_table;
    const auto row = rows->row();
    Totals& t = totals[{rows->owner(), row[kKind] == INGERO_NVTX_MARK,
                        row[kOpen] != 0, std::string(rows->text())}];
    ++t.count;
    t.total += row[kDuration];
    t.max = std::max(t.max, row[kDuration]);
    t.histogram.Add(row[kDuration]);
  }

  std::vector<NvtxSummary> out;
  const auto ns = [](uint64_t v) { return Ns(static_cast<int64_t>(v)); };
  for (const auto& [key, t] : totals) {
    NvtxSummary s;
    const std::string& text = std::get<3>(key);
    const size_t nul = std::min(text.find('\0'), text.size());
    s.process = std::get<0>(key);
    if (s.process >= reader.processes().size()) continue;
    s.domain = text.substr(0, nul);
    s.name = nul < text.size() ? text.substr(nul + 1) : "";
    s.mark = std::get<1>(key);
    s.open = std::get<2>(key);
    s.count = t.count;
    s.total = ns(t.total);
    s.average = ns(t.total / t.count);
    s.p50 = ns(t.histogram.Quantile(0.50, t.max));
    s.p95 = ns(t.histogram.Quantile(0.95, t.max));
    s.p99 = ns(t.histogram.Quantile(0.99, t.max));
    s.max = ns(t.max);
    out.push_back(std::move(s));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const NvtxSummary& a, const NvtxSummary& b) {
                     return a.total > b.total;
                   });
  return out;
}

}  // namespace ingero::merge
