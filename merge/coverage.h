// SPDX-License-Identifier: Apache-2.0
// How the CUDA calls of each process were seen, and what was not seen and why:
// from the coverage rows of the streams, and from what the companion saw of
// processes that have a CUDA library mapped.
#ifndef INGERO_MERGE_COVERAGE_H_
#define INGERO_MERGE_COVERAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/trace.h"

namespace ingero::merge {

class TraceReader;

struct CoverageLibrary {
  std::string path;     // links followed
  std::string name;     // its file name
  std::string version;  // as the name tells: "13.0.96", or only "13"
  bool runtime = false;  // a shared libcudart
};

// One way in which functions were resolved.
struct CoverageWay {
  std::string way;  // "the PLT", "dlsym", "cuGetProcAddress", ...
  uint64_t count = 0;  // look-ups; of the PLT: calling modules
  std::vector<std::string> entries;  // the functions, by name
};

struct CoverageEscape {
  std::string name, why;
  uint64_t count = 0;
  // Left alone on purpose, in every program: no call of interest.
  bool by_design = false;
};

struct CoverageDeepBind {
  std::string file;
  bool kept = false;  // else the shim cleared RTLD_DEEPBIND
};

// A library whose functions were recorded by name, on request.
struct CoverageEntryPoints {
  std::string group;  // as INGERO_APIS names it: "cublas"
  std::string path, name;  // of its file, links followed
  uint64_t functions = 0;
};

struct ProcessCoverage {
  analysis::ProcessIndex process = analysis::kNone;
  bool recorded = false;  // a stream of it was merged
  uint64_t calls = 0, skipped_calls = 0;
  bool runtime_layer = false, driver_layer = false, library_layer = false;
  std::vector<CoverageLibrary> libraries;
  std::vector<CoverageWay> ways;
  std::vector<CoverageEscape> escapes;
  // Modules with a runtime linked in (or a loader of their own).
  std::vector<std::string> static_runtimes;
  std::vector<CoverageDeepBind> deep_bound;
  std::string choice;  // INGERO_APIS, where it was set
  std::vector<std::string> asked;  // groups of libraries in it
  std::vector<CoverageEntryPoints> entry_points;
  // Where its stream was imported from ("torch.profiler"); "": ingero's own.
  std::string imported_from;
  bool gpu_told = false;  // imported with what the GPU did
  // Why nothing of it was recorded; "" where something was.
  std::string not_recorded;
  // The companion saw the shim in it: it was ready, and nothing came.
  bool shim_mapped = false;
  // A child of a recorded process that made no call itself: a loader's worker.
  bool idle_child = false;

  size_t hooked() const;  // functions, over all ways
  std::vector<std::string> Escaped() const;  // without those by design
};

// By process index.
std::vector<ProcessCoverage> ReadCoverage(const TraceReader& reader);

// "left out by choice (INGERO_APIS=launch)", or "by default" where nobody set
// it.
std::string LeftOut(const std::string& choice);

// "python3/4242", as sentences about it call it.
std::string NameOf(const analysis::Process& process);

// The line of `ingero explain` about it.
std::string CoverageSentence(const ProcessCoverage& coverage,
                             const analysis::Process& process);

// Why a process without a stream has none: bits of enum ingero_cuda_process.
std::string WhyNotRecorded(uint64_t seen);

// "13.0.96" of "libcudart.so.13.0.96"; "" where the name has none.
std::string VersionOfLibrary(const std::string& file_name);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_COVERAGE_H_
