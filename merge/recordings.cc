// SPDX-License-Identifier: Apache-2.0
#include "merge/recordings.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/file_error.h"
#include "base/task_stat.h"
#include "base/trace_dir.h"
#include "merge/kernel_stream.h"

namespace ingero::merge {
namespace {

constexpr char kSuffix[] = ".ingero";

std::string Boot() {
  auto text = ReadWholeFile("/proc/sys/kernel/random/boot_id");
  if (!text.ok()) return "";
  std::string hex;
  for (char c : *text)
    if (c != '-' && c != '\n') hex += c;
  return hex;
}

int64_t MonotonicNow() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// The last tick that the file tells of, from the block headers and the LIVE
// blocks; and one knot to turn it into ns.
struct Tail {
  uint64_t last_ticks = 0;
  std::optional<ingero_knot> first, last;  // knots that were met
};

void ScanRecords(std::string_view records, Tail* tail) {
  size_t at = 0;
  while (at + 8 <= records.size()) {
    ingero_record r;
    std::memcpy(&r, records.data() + at, sizeof(r));
    const size_t size = size_t{r.size8} * 8;
    if (r.kind == 0 || size == 0 || at + size > records.size()) break;
    if (r.kind == INGERO_RECORD_CALL && size >= sizeof(ingero_call)) {
      ingero_call c;
      std::memcpy(&c, records.data() + at, sizeof(c));
      tail->last_ticks = std::max<uint64_t>(
          tail->last_ticks,
          c.start_ticks + (uint64_t{c.duration_hi} << 32 | c.duration_lo));
    } else if (r.kind == INGERO_RECORD_KNOT && size >= sizeof(ingero_knot)) {
      ingero_knot k;
      std::memcpy(&k, records.data() + at, sizeof(k));
      if (!tail->first || k.ticks < tail->first->ticks) tail->first = k;
      if (!tail->last || k.ticks > tail->last->ticks) tail->last = k;
      tail->last_ticks = std::max<uint64_t>(tail->last_ticks, k.ticks);
    }
    at += size;
  }
}

// Where a CUDA stream ends, on the host's CLOCK_MONOTONIC.
int64_t CudaEnd(const OpenStream& stream) {
  const ingero_stream_header& h = stream.header;
  const uint64_t blocks =
      (stream.bytes + h.block_bytes - 1) / h.block_bytes;
  Tail tail;
  std::string records;
  for (uint64_t i = 1; i < blocks; ++i) {
    ingero_block_header b;
    auto got = stream.file.ReadAt(i * h.block_bytes, &b, sizeof(b));
    if (!got.ok() || *got != sizeof(b)) break;
    if (b.magic != INGERO_MAGIC_BLOCK) continue;
    const bool live = b.type == INGERO_BLOCK_LIVE;
    if (!live && b.type != INGERO_BLOCK_DATA) continue;
    if (!live && CheckBlockHeader(b) == Checked::kDamaged) continue;
    if (!live) tail.last_ticks = std::max<uint64_t>(tail.last_ticks,
                                                    b.last_ticks);
    for (const ingero_inflight& f : b.inflight)
      if (live && f.func != 0)
        tail.last_ticks = std::max<uint64_t>(tail.last_ticks, f.start_ticks);
    // DATA blocks are read only until a knot is known.
    if (!live && tail.first) continue;
    const uint64_t bytes = std::min<uint64_t>(b.cursor & UINT32_MAX,
                                              h.block_bytes - sizeof(b));
    if (!stream.file.ReadAt(i * h.block_bytes + sizeof(b), bytes, &records)
             .ok())
      break;
    if (!live && CheckBlockHeader(b) == Checked::kWhole &&
        RecordsCrc(records) != b.records_crc)
      continue;
    ScanRecords(records, &tail);
  }
  const int64_t created = stream.created_ns();
  if (tail.last_ticks == 0) return created;
  const auto offset = static_cast<uint64_t>(h.monotonic_offset_ns);
  int64_t end = created;
  if (h.clock == INGERO_CLOCK_MONOTONIC) {
    end = static_cast<int64_t>(tail.last_ticks - offset);
  } else if (tail.last) {
    double ns_per_tick =
        h.tsc_hz != 0 ? 1e9 / static_cast<double>(h.tsc_hz) : 0;
    if (ns_per_tick == 0 && tail.last->ticks != tail.first->ticks)
      ns_per_tick =
          static_cast<double>(tail.last->mono_ns - tail.first->mono_ns) /
          static_cast<double>(tail.last->ticks - tail.first->ticks);
    end = static_cast<int64_t>(tail.last->mono_ns - offset);
    // Where a damaged stream's numbers go beyond time, so does the sum.
    if (tail.last_ticks > tail.last->ticks)
      end = static_cast<int64_t>(
          static_cast<uint64_t>(end) +
          static_cast<uint64_t>(std::clamp(
              static_cast<double>(tail.last_ticks - tail.last->ticks) *
                  ns_per_tick,
              0.0, 1e18)));
  }
  return std::max(created, end);
}

std::string StemOf(const StreamInfo& s) {
  // Imported from a file that does not tell the time of day.
  if (s.created_real_ns == 0) return "undated-" + s.boot_id.substr(0, 8);
  const time_t seconds = s.created_real_ns / 1'000'000'000;
  tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}-{}", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                     utc.tm_sec, s.boot_id.substr(0, 4));
}

}  // namespace

std::vector<std::string> ListStores(const std::string& dir) {
  std::vector<std::string> stores;
  std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(dir.c_str()), closedir);
  if (open == nullptr) return stores;
  while (const dirent* entry = readdir(open.get()))
    if (std::string_view(entry->d_name).ends_with(".store"))
      stores.push_back(dir + "/" + entry->d_name);
  return stores;
}

bool WriterRuns(const ingero_stream_header& header) {
  if (BootIdText(header.boot_id) != Boot()) return false;
  struct stat own;
  if (stat("/proc/self/ns/pid", &own) == 0 && header.pid_namespace != 0 &&
      own.st_ino != header.pid_namespace)
    return false;  // its pid means nothing here
  if (header.pid == 0) return false;
  const auto stat = ReadTaskStat(header.pid);
  return stat && stat->start_ticks == header.start_clock_ticks &&
         !IsDead(header.pid, *stat);
}

StreamInfo InspectStream(const std::string& path) {
  StreamInfo info;
  info.path = path;
  auto stream = OpenStreamFile(path);
  if (!stream.ok()) {
    info.problem = stream.status().message();
    return info;
  }
  const ingero_stream_header& h = stream->header;
  info.kernel = stream->kernel();
  info.code = stream->code();
  info.stream_id = h.stream_id;
  info.boot_id = BootIdText(h.boot_id);
  info.pid = h.pid;
  info.parent_pid = h.parent_pid;
  info.run_id = h.run_id;
  info.comm = FixedText(h.comm);
  info.host = FixedText(h.host);
  info.created_real_ns = static_cast<int64_t>(h.created_real_ns);
  info.bytes = stream->bytes;
  info.live = h.exited == 0 && WriterRuns(h);
  info.span.begin = Ns(stream->created_ns());
  if (stream->coded()) {
    auto kernel = KernelStream::Open(path, false);
    if (!kernel.ok()) {
      info.problem = kernel.status().message();
      return info;
    }
    info.span.end = (*kernel)->span().end;
    if (info.kernel && !info.live && (*kernel)->blocks().empty())
      info.problem = fmt::format(
          "{}: holds no event behind its header ({} bytes): it was cut, or "
          "ingero-kprobe was killed at once; copy it again, or record again",
          path, info.bytes);
  } else {
    info.span.end = Ns(CudaEnd(*stream));
  }
  if (info.live) info.span.end = std::max(info.span.end, Ns(MonotonicNow()));
  return info;
}

std::vector<Recording> ListRecordings(const std::vector<std::string>& dirs,
                                      std::vector<std::string>* problems) {
  return ListRecordings(dirs, dirs.size() > 1 && dirs == DefaultTraceDirs(),
                        problems);
}

std::vector<Recording> ListRecordings(const std::vector<std::string>& dirs,
                                      bool first_leads,
                                      std::vector<std::string>* problems) {
  std::vector<StreamInfo> streams;
  for (const std::string& dir : dirs) {
    std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(dir.c_str()), closedir);
    if (open == nullptr) {
      const int error = errno;
      const bool may_read = error != EACCES && error != EPERM;
      if (problems != nullptr && error != ENOENT)
        problems->push_back(
            (may_read ? CannotUseFolder(dir, error)
                      : CannotOpen("folder " + dir, error)).message());
      continue;
    }
    while (const dirent* entry = readdir(open.get())) {
      const std::string_view name = entry->d_name;
      if (name.ends_with(kSuffix))
        streams.push_back(InspectStream(dir + "/" + std::string(name)));
    }
  }
  std::sort(streams.begin(), streams.end(),
            [](const StreamInfo& a, const StreamInfo& b) {
              return std::tie(a.boot_id, a.span.begin, a.path) <
                     std::tie(b.boot_id, b.span.begin, b.path);
            });
  // A copy of a stream is the same stream: the longer one counts.
  std::map<uint64_t, size_t> by_id;
  std::vector<StreamInfo> unreadable, unique;
  for (StreamInfo& s : streams) {
    if (!s.problem.empty()) {
      unreadable.push_back(std::move(s));
      continue;
    }
    const auto [it, added] = by_id.try_emplace(s.stream_id, unique.size());
    if (added)
      unique.push_back(std::move(s));
    else if (s.bytes > unique[it->second].bytes)
      unique[it->second] = std::move(s);
  }
  streams = std::move(unique);
  // The first of the default folders is where programs write; a companion that
  // was started without their environment (sudo drops it) wrote elsewhere.
  const auto in_first = [&dirs](const StreamInfo& s) {
    return s.path.starts_with(dirs.front() + "/");
  };
  first_leads =
      first_leads && std::any_of(streams.begin(), streams.end(), in_first);
  if (first_leads)
    std::erase_if(streams, [&](const StreamInfo& s) {
      return !s.kernel && !in_first(s);
    });
  // A sweep over each boot: a stream that begins after all before it have
  // ended begins a new recording.
  std::vector<Recording> recordings;
  Ns covered;
  // Programs of one run may have pauses between them: what others recorded
  // there belongs to the same time.
  struct Run {
    size_t recording;
    Ns end;
  };
  std::map<std::pair<std::string, uint64_t>, Run> runs;
  for (StreamInfo& s : streams) {
    const auto run = runs.find({s.boot_id, s.run_id});
    if (!recordings.empty() &&
        recordings.back().streams.front().boot_id == s.boot_id &&
        s.span.begin <= covered) {
      covered = std::max(covered, s.span.end);
    } else if (run != runs.end() && s.span.begin <= run->second.end + kRunGap) {
      const size_t joined = run->second.recording;
      for (size_t i = joined + 1; i < recordings.size(); ++i)
        std::move(recordings[i].streams.begin(), recordings[i].streams.end(),
                  std::back_inserter(recordings[joined].streams));
      recordings.resize(joined + 1);
      for (auto& [key, other] : runs)
        other.recording = std::min(other.recording, joined);
      covered = s.span.end;
    } else {
      recordings.push_back({});
      covered = s.span.end;
    }
    if (s.run_id != 0) {
      Run& known = runs.try_emplace({s.boot_id, s.run_id},
                                    Run{recordings.size() - 1, s.span.end})
                       .first->second;
      known = {recordings.size() - 1, std::max(known.end, s.span.end)};
    }
    recordings.back().streams.push_back(std::move(s));
  }
  // Where code was is worth nothing alone.
  std::erase_if(recordings, [](const Recording& r) {
    return std::all_of(r.streams.begin(), r.streams.end(),
                       [](const StreamInfo& s) { return s.code; });
  });
  if (first_leads)
    std::erase_if(recordings, [&](const Recording& r) {
      return std::none_of(r.streams.begin(), r.streams.end(), in_first);
    });
  std::stable_sort(recordings.begin(), recordings.end(),
                   [](const Recording& a, const Recording& b) {
                     return a.streams.front().created_real_ns <
                            b.streams.front().created_real_ns;
                   });
  // Said with the newest recording: when they were made is not known.
  for (StreamInfo& s : unreadable)
    if (!recordings.empty())
      recordings.back().streams.push_back(std::move(s));
    else if (problems != nullptr)
      problems->push_back(s.problem);
  std::map<std::string, int> used;
  for (Recording& r : recordings) {
    r.id = StemOf(r.streams.front());
    if (const int n = ++used[r.id]; n > 1) r.id += fmt::format("-{}", n);
    r.store_path = dirs.front() + "/" + r.id + ".store";
    r.merged = access((r.store_path + "/data.mdb").c_str(), F_OK) == 0;
  }
  return recordings;
}

}  // namespace ingero::merge
