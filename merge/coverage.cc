// SPDX-License-Identifier: Apache-2.0
#include "merge/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/tables.h"
#include "merge/schema.h"
#include "merge/stream.h"
#include "merge/trace_reader.h"
#include "wire/wire.h"

namespace ingero::merge {
namespace {

using analysis::kNone;
using analysis::Process;
using analysis::ProcessIndex;

const char* NameOfWay(uint64_t way) {
  switch (way) {
    case INGERO_WAY_LINKED: return "the PLT";
    case INGERO_WAY_DLSYM: return "dlsym";
    case INGERO_WAY_PROC_ADDRESS: return "cuGetProcAddress";
    case INGERO_WAY_DRIVER_ENTRY: return "cudaGetDriverEntryPoint";
    default: return nullptr;
  }
}

// Every runtime asks for these, and no call of interest goes through them
// (docs/coverage.md). Older shims had no wrapper for those of EGL streams.
bool EscapesByDesign(const std::string& name) {
  return name == "cuGetExportTable" || name.starts_with("cuEGLStream");
}

std::string Listed(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most)
    text += fmt::format(" and {} more", names.size() - most);
  return text;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

const char* WhyEscaped(uint64_t detail) {
  switch (detail) {
    case INGERO_ESCAPE_COPY: return "of a second copy of its library";
    case INGERO_ESCAPE_NO_THUNK: return "of a library, more than can be hooked";
    case INGERO_ESCAPE_NEXT: return "of a library, asked for with RTLD_NEXT";
    case INGERO_ESCAPE_READ_ONLY:
      return "of a library, its pointer cannot be replaced";
    case INGERO_ESCAPE_LATE:
      return "of a library, bound while it was being hooked: calls until that "
             "was found are missing";
    case INGERO_ESCAPE_MODULE:
      return "a module whose calls of libraries are missing: its path is too "
             "long, or there are too many modules";
    default: return "not known to ingero";
  }
}

// As INGERO_APIS names it; nullptr: no library's.
const char* NameOfGroup(uint64_t call_class) {
  switch (call_class) {
#define X(id, value, name) \
  case value: return value >= INGERO_CLASS_NCCL ? name : nullptr;
    INGERO_CLASSES(X)
#undef X
    default: return nullptr;
  }
}

CoverageWay& WayOf(ProcessCoverage* c, uint64_t way) {
  const char* name = NameOfWay(way);
  for (CoverageWay& w : c->ways)
    if (w.way == name) return w;
  c->ways.push_back({name, 0, {}});
  return c->ways.back();
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

std::string NameOf(const Process& p) {
  return fmt::format("{}/{}", p.name.empty() ? "process" : p.name, p.pid);
}

std::string WhyNotRecorded(uint64_t seen) {
  if (seen & INGERO_CUDA_SHIM_MAPPED) {
    if (seen & INGERO_CUDA_DISABLED)
      return "the shim was loaded, but INGERO_DISABLE is set";
    std::string why =
        "the shim was loaded, but no readable stream of it is here: it records "
        "into another folder (INGERO_DIR), its stream is damaged (then merge "
        "says so), it made no CUDA call, or its trace folder could not be used "
        "(then it said so on stderr)";
    if (!(seen & INGERO_CUDA_CLEAR_DEEPBIND))
      why += ", or they come from a library opened with RTLD_DEEPBIND (then "
             "set INGERO_CLEAR_DEEPBIND=1)";
    return why;
  }
  if (seen & INGERO_CUDA_STATIC)
    return "it is linked statically, and LD_PRELOAD needs a dynamic loader";
  if (seen & INGERO_CUDA_SECURE)
    return "it runs with raised privileges (setuid, setgid or file "
           "capabilities), where the loader drops LD_PRELOAD; start it as the "
           "target user instead";
  if (seen & INGERO_CUDA_NO_ENVIRON)
    return "the shim was not loaded; its environment could not be read";
  if (seen & INGERO_CUDA_SHIM_ASKED)
    return "LD_PRELOAD names the shim, but the loader did not load it: not "
           "found from there (a container?), or a C library older than 2.28 "
           "or other than glibc";
  return "LD_PRELOAD=libingero_cuda.so was not in its environment when it was "
         "started (sudo, env -i and job launchers clear it)";
}

size_t ProcessCoverage::hooked() const {
  std::set<std::string> names;
  for (const CoverageWay& w : ways)
    names.insert(w.entries.begin(), w.entries.end());
  return names.size();
}

std::vector<std::string> ProcessCoverage::Escaped() const {
  std::vector<std::string> names;
  for (const CoverageEscape& e : escapes)
    if (!e.by_design) names.push_back(e.name);
  return names;
}

std::string VersionOfLibrary(const std::string& file_name) {
  const size_t so = file_name.find(".so.");
  if (so == file_name.npos) return "";
  const std::string version = file_name.substr(so + 4);
  return version.find_first_not_of("0123456789.") == version.npos ? version
                                                                   : "";
}

std::vector<ProcessCoverage> ReadCoverage(const TraceReader& reader) {
  const auto& processes = reader.processes();
  std::map<ProcessIndex, ProcessCoverage> found;
  std::map<ProcessIndex, uint64_t> seen;
  for (ProcessIndex p = 0; p < processes.size(); ++p) {
    if (!processes[p].has_cuda) continue;
    ProcessCoverage& c = found[p];
    c.recorded = true;
    const auto layers =
        static_cast<uint64_t>(reader.Fact("layers." + std::to_string(p)));
    c.runtime_layer = layers >> INGERO_LAYER_RUNTIME & 1;
    c.driver_layer = layers >> INGERO_LAYER_DRIVER & 1;
    c.library_layer = layers >> INGERO_LAYER_LIBRARY & 1;
  }
  for (const StoredStream& s : reader.streams()) {
    if (!s.cuda() || s.process == kNone) continue;
    ProcessCoverage& c = found[s.process];
    c.recorded = true;
    c.calls += s.events;
    c.skipped_calls += s.skipped_calls;
  }

  Rows rows;
  if (!reader.ReadAll(coverage_table::kSchema, &rows).ok()) rows = {};
  for (size_t r = 0; r < rows.size(); ++r) {
    using namespace coverage_table;
    const auto process = static_cast<ProcessIndex>(rows.at(r, kProcess));
    if (process >= processes.size()) continue;
    ProcessCoverage& c = found[process];
    const std::string& text = rows.texts[r];
    const uint64_t count = rows.at(r, kCountSeen), detail = rows.at(r, kDetail);
    switch (rows.at(r, kWay)) {
      case INGERO_WAY_MAPPED: {
        const std::string name = FileName(text);
        c.libraries.push_back({text, name, VersionOfLibrary(name),
                               name.find("cudart") != name.npos});
        break;
      }
      case INGERO_WAY_LINKED:
      case INGERO_WAY_DLSYM:
      case INGERO_WAY_PROC_ADDRESS:
      case INGERO_WAY_DRIVER_ENTRY:
        WayOf(&c, rows.at(r, kWay)).count += count;
        break;
      case INGERO_WAY_ENTRIES:
        if (NameOfWay(detail) != nullptr)
          for (std::string& name : Words(text))
            WayOf(&c, detail).entries.push_back(std::move(name));
        break;
      case INGERO_WAY_ESCAPED:
        c.escapes.push_back(
            {text, WhyEscaped(detail), count, EscapesByDesign(text)});
        break;
      case INGERO_WAY_ASKED_BY:
        if (FileName(text).find("libcudart") == text.npos)
          c.static_runtimes.push_back(text);
        break;
      case INGERO_WAY_DEEPBIND:
        c.deep_bound.push_back({text, detail != 0});
        break;
      case INGERO_WAY_CHOICE:
        c.choice = text;
        c.asked.clear();
        for (uint64_t k = INGERO_CLASS_NCCL; NameOfGroup(k) != nullptr; ++k)
          if (detail >> (k - INGERO_CLASS_NCCL) & 1)
            c.asked.push_back(NameOfGroup(k));
        break;
      case INGERO_WAY_LIBRARY:
        if (NameOfGroup(detail) != nullptr)
          c.entry_points.push_back(
              {NameOfGroup(detail), text, FileName(text), count});
        break;
      case INGERO_WAY_IMPORTED:
        c.imported_from = text;
        c.gpu_told = detail != 0;
        break;
      case INGERO_WAY_PROCESS:
        seen[process] |= count;
        if (!c.recorded && c.libraries.empty()) {
          const std::string name = FileName(text);
          c.libraries.push_back({text, name, VersionOfLibrary(name),
                                 name.find("cudart") != name.npos});
        }
        break;
    }
  }

  std::vector<ProcessCoverage> out;
  for (auto& [process, c] : found) {
    c.process = process;
    for (CoverageWay& w : c.ways) {
      std::sort(w.entries.begin(), w.entries.end());
      w.entries.erase(std::unique(w.entries.begin(), w.entries.end()),
                      w.entries.end());
    }
    if (const auto s = seen.find(process); s != seen.end()) {
      c.shim_mapped = s->second & INGERO_CUDA_SHIM_MAPPED;
      const auto parent = found.find(processes[process].parent);
      c.idle_child = !c.recorded && c.shim_mapped &&
                     !(s->second & INGERO_CUDA_DISABLED) &&
                     parent != found.end() && parent->second.calls > 0 &&
                     parent->second.deep_bound.empty();
      if (c.idle_child)
        c.not_recorded = fmt::format(
            "no CUDA call was made; the libraries are those of {}, which was "
            "recorded (as a data loader's workers)",
            NameOf(processes[parent->first]));
      else if (!c.recorded)
        c.not_recorded = WhyNotRecorded(s->second);
    }
    if (c.recorded && c.calls == 0)
      c.not_recorded =
          c.skipped_calls > 0
              ? fmt::format("none is in its stream, {} more were {}",
                            c.skipped_calls, LeftOut(c.choice))
              : "its stream holds no call";
    out.push_back(std::move(c));
  }
  return out;
}

std::string LeftOut(const std::string& choice) {
  return choice.empty() ? std::string("left out by default")
                        : "left out by choice (INGERO_APIS=" + choice + ")";
}

std::string CoverageSentence(const ProcessCoverage& c, const Process& process) {
  const std::string name = NameOf(process);
  if (c.idle_child)
    return fmt::format("no calls of {}: {}", name, c.not_recorded);
  if (!c.recorded) {
    std::string library = c.libraries.empty() ? "a CUDA library"
                                              : c.libraries[0].name;
    return fmt::format("{} has {} mapped, but nothing of it was recorded: {}",
                       name, library, c.not_recorded);
  }
  std::vector<std::string> layers;
  if (c.runtime_layer) layers.push_back("runtime");
  if (c.driver_layer) layers.push_back("driver");
  if (c.library_layer) layers.push_back("library");
  std::string text =
      Joined(layers) + (layers.empty() ? "calls of " : " calls of ") + name;
  if (!c.not_recorded.empty())
    text = fmt::format("no calls of {}: {}", name, c.not_recorded);
  else if (!c.imported_from.empty())
    text += fmt::format("{} imported from {}",
                        c.gpu_told ? ", and what GPUs did for it," : "",
                        c.imported_from);
  else
    text += " seen";
  std::vector<std::string> ways;
  for (const CoverageWay& w : c.ways) ways.push_back(w.way);
  if (!ways.empty()) text += " through " + Joined(ways);

  std::vector<std::string> shared, in;
  for (const CoverageLibrary& l : c.libraries)
    if (l.runtime) shared.push_back(l.name);
  for (const std::string& module : c.static_runtimes)
    in.push_back(FileName(module));
  if (!shared.empty() || !in.empty()) {
    text += "; runtime: ";
    if (!shared.empty()) text += Listed(shared, 3) + " (shared)";
    // Linked statically, it is no library of its own.
    if (!in.empty())
      text += fmt::format("{}static in {}, its calls appear at driver level",
                          shared.empty() ? "" : "; ", Listed(in, 3));
  } else if (c.driver_layer && !c.runtime_layer && !c.ways.empty()) {
    text += "; runtime: static, its calls appear at driver level";
  }
  std::vector<std::string> kept;
  for (const CoverageDeepBind& d : c.deep_bound)
    if (d.kept) kept.push_back(FileName(d.file));
  if (!kept.empty())
    text += "; not seen: calls from " + Listed(kept, 3) +
            ", opened with RTLD_DEEPBIND (INGERO_CLEAR_DEEPBIND=1 has them "
            "seen)";
  const std::vector<std::string> escaped = c.Escaped();
  if (!escaped.empty())
    text += fmt::format("; {} function{} handed out unwrapped: {}",
                        escaped.size(), escaped.size() == 1 ? "" : "s",
                        Listed(escaped, 5));
  return text;
}

}  // namespace ingero::merge
