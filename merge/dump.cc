// SPDX-License-Identifier: Apache-2.0
#include "merge/dump.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/tables.h"
#include "base/text.h"
#include "merge/clock_map.h"
#include "merge/cuda_stream.h"
#include "merge/kernel_stream.h"
#include "merge/store_output.h"
#include "merge/trace_reader.h"

namespace ingero::merge {
namespace {

bool IsOperations(const TableSchema& schema) {
  return schema.id == op_summary_table::kSchema.id ||
         schema.id == op_minutes_table::kSchema.id;
}

// One event a line: "calls t_ns=1 ..." or {"table":"calls","t_ns":1,...}.
class Line {
 public:
  Line(DumpFormat format, std::string_view table) : json_(format ==
                                                          DumpFormat::kJsonLines) {
    text_ = json_ ? fmt::format("{{\"table\":\"{}\"", table)
                  : std::string(table);
  }
  void Number(std::string_view name, uint64_t value) {
    text_ += json_ ? fmt::format(",\"{}\":{}", name, value)
                   : fmt::format(" {}={}", name, value);
  }
  void Signed(std::string_view name, int64_t value) {
    text_ += json_ ? fmt::format(",\"{}\":{}", name, value)
                   : fmt::format(" {}={}", name, value);
  }
  void Text(std::string_view name, std::string_view value) {
    if (value.empty()) return;
    text_ += json_ ? fmt::format(",\"{}\":\"{}\"", name, Escape(value))
                   : fmt::format(" {}=\"{}\"", name, Escape(value));
  }
  std::string Take() { return text_ + (json_ ? "}\n" : "\n"); }

 private:
  // JSON's escapes; also used for text lines, so that a line stays one.
  static std::string Escape(std::string_view value) {
    std::string out;
    for (const char c : SanitizeBytes(value)) {
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", c);
      } else {
        out += c;
      }
    }
    return out;
  }
  // NUL and 0x1f separate parts of stored texts: shown as "|".
  static std::string SanitizeBytes(std::string_view value) {
    std::string out(value);
    std::replace(out.begin(), out.end(), '\0', '|');
    std::replace(out.begin(), out.end(), '\x1f', ' ');
    return SanitizeForTerminal(out);
  }

  bool json_;
  std::string text_;
};

using Write = std::function<void(std::string_view)>;

struct Sink {
  DumpFormat format;
  const DumpFilter& filter;
  const Write& write;
  bool Wants(std::string_view table) const {
    return filter.table.empty() || filter.table == table;
  }
  bool Wants(int64_t t) const {
    return !filter.window || filter.window->Contains(Ns(t));
  }
};

// What turns indices of a row into names, where a store is at hand.
void AddNames(const TraceReader& reader, const TableSchema& schema,
              uint32_t owner, std::span<const uint64_t> row, Line* line) {
  if (schema.id == call_table::kSchema.id) {
    if (row[call_table::kFunc] < reader.functions().size())
      line->Text("name", reader.functions()[row[call_table::kFunc]].name);
    const StoredFunction& f = reader.WordsOf(row[call_table::kFunc]);
    for (size_t w = 0; w < 4; ++w)
      if (f.words[w] == INGERO_WORD_KERNEL)
        line->Text("kernel",
                   reader.KernelName(owner, row[call_table::kWord0 + w]));
  }
  if ((schema.id == split_table::kSchema.id &&
       row[split_table::kFunc] < reader.functions().size()))
    line->Text("name", reader.functions()[row[split_table::kFunc]].name);
  if (IsOperations(schema) &&
      row[op_summary_table::kFunc] < reader.functions().size())
    line->Text("name", reader.functions()[row[op_summary_table::kFunc]].name);
  if (schema.id == code_table::kSchema.id) {
    using namespace code_table;
    const auto add = [&](std::string_view name, uint64_t index) {
      if (index >= reader.code_lines().size()) return;
      const analysis::CodeLine& at = reader.code_lines()[index];
      line->Text(name, fmt::format("{}:{} in {}", at.file, at.line,
                                   at.function));
    };
    add("at", row[kPlace]);
    if (row[kInnermost] != row[kPlace]) add("in", row[kInnermost]);
    if (row[kFunc] != 0 && row[kFunc] <= reader.functions().size())
      line->Text("name", reader.functions()[row[kFunc] - 1].name);
  }
  if (schema.id == loss_table::kSchema.id) {
    if (const LossInfo* info = FindLoss(row[loss_table::kLoss]))
      line->Text("id", info->id);
  }
}

bool IsSigned(const Column& column) {
  return column.transform == Transform::kZigzag;
}

void DumpRow(const Sink& sink, const TableSchema& schema, uint32_t owner,
             std::span<const uint64_t> row, std::string_view text,
             const TraceReader* reader) {
  Line line(sink.format, schema.name);
  line.Number("owner", owner);
  for (size_t c = 0; c < row.size(); ++c) {
    if (c == 0 || IsSigned(schema.columns[c]))
      line.Signed(schema.columns[c].name, static_cast<int64_t>(row[c]));
    else
      line.Number(schema.columns[c].name, row[c]);
  }
  if (schema.has_text) {
    if (IsOperations(schema)) {
      // A histogram: its quantiles, not its bytes.
      if (auto h = Histogram::Parse(text); h.ok()) {
        line.Number("p50_ns", h->Quantile(0.5));
        line.Number("p99_ns", h->Quantile(0.99));
      }
    } else {
      line.Text("text", text);
    }
  }
  if (reader != nullptr) AddNames(*reader, schema, owner, row, &line);
  sink.write(line.Take());
}

Status CheckTableName(const std::string& name, bool cuda_stream) {
  if (name.empty()) return {};
  std::string known;
  const auto is = [&](std::string_view other) {
    known += (known.empty() ? "" : ", ") + std::string(other);
    return other == name;
  };
  if (cuda_stream) {
    for (std::string_view kind :
         {"calls", "threads", "knots", "functions", "kernel_names", "losses",
          "coverage", "nvtx", "gpu_activity", "processes"})
      if (is(kind)) return {};
  } else {
    for (const TableSchema* t : kAllTables)
      if (is(t->name)) return {};
    for (const TableSchema* t : kDescriptionTables)
      if (is(t->name)) return {};
  }
  return Status::Error("no table '" + name + "'; there are " + known);
}

// Blocks of any source, in time order within each table.
Status DumpBlocks(const Sink& sink, const std::vector<BlockRef>& blocks,
                  const BlockReader& read, const TraceReader* reader) {
  std::vector<uint16_t> ids;
  for (const BlockRef& b : blocks)
    if (std::find(ids.begin(), ids.end(), b.table) == ids.end())
      ids.push_back(b.table);
  std::sort(ids.begin(), ids.end());
  size_t damaged = 0;
  for (const uint16_t id : ids) {
    const TableSchema* schema = FindStoreTable(id);
    if (schema == nullptr || !sink.Wants(schema->name)) continue;
    std::vector<BlockRef> mine;
    for (const BlockRef& b : blocks)
      if (b.table == id) mine.push_back(b);
    // Description rows have no time of their own to filter by.
    const bool described = id >= process_table::kSchema.id;
    const Interval always{Ns(INT64_MIN), Ns(INT64_MAX)};
    RowCursor rows(*schema, std::move(mine),
                   described ? always : sink.filter.window.value_or(always),
                   read);
    while (rows.Next())
      DumpRow(sink, *schema, rows.owner(), rows.row(), rows.text(), reader);
    damaged += rows.damaged().size();
  }
  if (damaged != 0)
    return Status::Error(fmt::format("{} damaged block{} left out", damaged,
                                     damaged == 1 ? "" : "s"));
  return {};
}

Status DumpCuda(const std::string& path, const Sink& sink) {
  INGERO_RETURN_IF_ERROR(CheckTableName(sink.filter.table, true));
  INGERO_ASSIGN_OR_RETURN(auto stream, CudaStream::Open(path));
  const ingero_stream_header& h = stream->header();
  std::optional<ClockMap> clock;
  if (h.clock == INGERO_CLOCK_MONOTONIC)
    clock = ClockMap::Identity(h.monotonic_offset_ns);
  else
    clock = ClockMap::Fit({}, stream->knots(), h.tsc_hz);
  const auto ns = [&](uint64_t ticks) {
    return clock ? clock->ToNs(ticks) : static_cast<int64_t>(ticks);
  };
  if (sink.Wants("processes")) {
    Line line(sink.format, "processes");
    line.Number("pid", h.pid);
    line.Number("start_clock_ticks", h.start_clock_ticks);
    line.Number("pid_namespace", h.pid_namespace);
    line.Signed("created_ns", stream->created_ns());
    line.Number("calls_skipped", h.calls_skipped);
    line.Number("exited", h.exited);
    line.Text("comm", FixedText(h.comm));
    line.Text("exe", stream->exe());
    line.Text("cmdline", stream->cmdline());
    line.Text("tool_version", FixedText(h.tool_version));
    sink.write(line.Take());
  }
  if (sink.Wants("threads"))
    for (const auto& [tid, name] : stream->threads()) {
      Line line(sink.format, "threads");
      line.Number("tid", tid);
      line.Text("comm", name.comm);
      sink.write(line.Take());
    }
  if (sink.Wants("functions"))
    for (const auto& [id, f] : stream->functions()) {
      Line line(sink.format, "functions");
      line.Number("func", id);
      line.Text("name", f.name);
      line.Number("layer", f.layer);
      line.Number("class", f.call_class);
      sink.write(line.Take());
    }
  if (sink.Wants("kernel_names"))
    for (const auto& [kernel, name] : stream->kernels()) {
      Line line(sink.format, "kernel_names");
      line.Number("kernel", kernel);
      line.Text("name", name);
      sink.write(line.Take());
    }
  if (sink.Wants("knots"))
    for (const Knot& k : stream->knots()) {
      Line line(sink.format, "knots");
      line.Signed("t_ns", k.mono_ns);
      line.Number("ticks", k.ticks);
      line.Number("window_ticks", k.window_ticks);
      sink.write(line.Take());
    }
  if (sink.Wants("coverage"))
    for (const CudaStream::Coverage& c : stream->coverage()) {
      Line line(sink.format, "coverage");
      line.Number("way", c.way);
      line.Number("detail", c.detail);
      line.Number("count", c.count);
      line.Text("text", c.text);
      sink.write(line.Take());
    }
  if (sink.Wants("losses"))
    for (const CudaStream::Loss& l : stream->losses()) {
      Line line(sink.format, "losses");
      const LossInfo* info = FindLoss(l.loss);
      line.Text("id", info != nullptr ? info->id : "unknown");
      line.Number("count", l.count);
      if (l.first_ticks != 0) {
        line.Signed("t_ns", ns(l.first_ticks));
        line.Signed("end_ns", ns(l.last_ticks));
      }
      sink.write(line.Take());
    }
  if (sink.Wants("nvtx"))
    INGERO_RETURN_IF_ERROR(stream->EachRange([&](const WireRange& r) {
      const int64_t begin = ns(r.start_ticks);
      if (!sink.Wants(begin)) return Status();
      Line line(sink.format, "nvtx");
      line.Signed("begin_ns", begin);
      if (r.open)
        line.Number("open", 1);
      else
        line.Signed("duration_ns", ns(r.end_ticks) - begin);
      line.Number("tid", r.tid);
      line.Number("kind", r.kind);
      line.Text("domain", stream->NvtxName(r.domain));
      line.Text("name", stream->NvtxName(r.name));
      sink.write(line.Take());
      return Status();
    }));
  if (sink.Wants("gpu_activity"))
    INGERO_RETURN_IF_ERROR(
        stream->EachGpuActivity([&](const WireGpuActivity& a) {
          const int64_t begin = ns(a.start_ticks);
          if (!sink.Wants(begin)) return Status();
          Line line(sink.format, "gpu_activity");
          line.Signed("begin_ns", begin);
          line.Signed("duration_ns", ns(a.end_ticks) - begin);
          line.Number("kind", a.kind);
          line.Number("device", a.device);
          line.Number("stream", a.stream);
          line.Number("kernel", a.kernel);
          line.Number("bytes", a.bytes);
          sink.write(line.Take());
          return Status();
        }));
  if (sink.Wants("calls")) {
    CallReader reader(*stream);
    WireCall call;
    while (reader.Next(&call)) {
      const int64_t begin = ns(call.start_ticks);
      if (!sink.Wants(begin)) continue;
      Line line(sink.format, "calls");
      line.Signed("begin_ns", begin);
      if (call.no_end)
        line.Number("no_end", 1);
      else
        line.Signed("duration_ns", ns(call.end_ticks) - begin);
      line.Number("tid", call.tid);
      const auto f = stream->functions().find(call.func);
      if (f != stream->functions().end())
        line.Text("name", f->second.name);
      else
        line.Number("func", call.func);
      line.Number("result", call.result);
      line.Number("depth", call.depth);
      line.Number("flags", call.flags);
      for (size_t w = 0; w < call.words_used; ++w)
        line.Number(fmt::format("word{}", w), call.words[w]);
      sink.write(line.Take());
    }
  }
  if (!clock)
    return Status::Error(path +
                         ": holds no usable clock samples; times are ticks");
  return {};
}

Status DumpKernel(const std::string& path, const Sink& sink) {
  INGERO_RETURN_IF_ERROR(CheckTableName(sink.filter.table, false));
  INGERO_ASSIGN_OR_RETURN(auto stream, KernelStream::Open(path, true));
  Status s = DumpBlocks(
      sink, stream->blocks(),
      [&](const BlockRef& ref, std::string* bytes) {
        return stream->Read(ref, bytes);
      },
      nullptr);
  if (!s.ok()) return std::move(s).In(path);
  if (stream->skipped_places() != 0)
    return Status::Error(fmt::format("{}: {} bytes in {} damaged place{} left "
                                     "out",
                                     path, stream->skipped_bytes(),
                                     stream->skipped_places(),
                                     stream->skipped_places() == 1 ? "" : "s"));
  if (stream->torn())
    return Status::Error(path + ": ends in the middle of a block");
  return {};
}

}  // namespace

Status Dump(const std::string& path, DumpFormat format,
            const DumpFilter& filter, const Write& write) {
  const Sink sink{format, filter, write};
  struct stat st;
  if (stat(path.c_str(), &st) != 0)
    return FindStoreData(path).status();  // which says why, and where to look
  if (S_ISREG(st.st_mode)) {
    uint64_t magic = 0;
    INGERO_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
    INGERO_ASSIGN_OR_RETURN(const size_t got,
                            file.ReadAt(0, &magic, sizeof(magic)));
    if (got == sizeof(magic) && magic == INGERO_MAGIC_CUDA)
      return DumpCuda(path, sink);
    if (got == sizeof(magic) &&
        (magic == INGERO_MAGIC_KERNEL || magic == INGERO_MAGIC_CODE))
      return DumpKernel(path, sink);
    if (!IsLmdb(path))
      return Status::Error(path +
                           ": is neither a store nor a stream of ingero; "
                           "`ingero list` shows where those are");
  }
  INGERO_RETURN_IF_ERROR(CheckTableName(filter.table, false));
  INGERO_ASSIGN_OR_RETURN(const std::string data, FindStoreData(path));
  INGERO_ASSIGN_OR_RETURN(auto reader, TraceReader::OpenToAsk(data));
  Status s = DumpBlocks(
      sink, reader->file().blocks(),
      [&](const BlockRef& ref, std::string* bytes) {
        return reader->file().Read(ref, bytes);
      },
      reader.get());
  return std::move(s).In(data);
}

bool IsDumpTable(const std::string& name) {
  return CheckTableName(name, true).ok() || CheckTableName(name, false).ok();
}

Status Dump(const std::string& path, DumpFormat format, const Write& write) {
  return Dump(path, format, DumpFilter(), write);
}

}  // namespace ingero::merge
