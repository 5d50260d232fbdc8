// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace of torch.profiler: read, and what could be read written
// as streams. Run for a minute with
//
//   build/tests/import/kineto_fuzz -max_total_time=60 CORPUS
//
// Most bytes are no JSON, so input becomes events: each takes a few bytes for
// its kind, its times and its numbers; the first byte says whether the text is
// changed at a place, too.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "import/import.h"

namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool any() const { return left_ > 0; }
  uint8_t Next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

std::string Trace(Bytes* in) {
  static const char* const kCats[] = {"cuda_runtime", "cuda_driver", "kernel",
                                      "gpu_memcpy",   "gpu_memset",  "cpu_op",
                                      "user_annotation", "odd"};
  static const char* const kNames[] = {
      "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize",
      "cudaDeviceSynchronize", "cudaMemsetAsync", "cudaGraphLaunch",
      "Memcpy HtoD (Pageable -> Device)", "k\\u0000\\n\\ud83d"};
  static const char* const kTimes[] = {"1e400", "-5", "1700000000000000",
                                       "99999999999999999999", "\"7\"", "null"};
  std::string text = "{\"traceEvents\":[";
  int64_t t = 1'700'000'000'000'000;
  for (size_t events = 0; in->any() && events < 200; ++events) {
    const uint8_t kind = in->Next(), when = in->Next(), length = in->Next(),
                  ids = in->Next();
    t += when & 127;
    text += events == 0 ? "{" : ",{";
    text += "\"ph\":\"X\",\"cat\":\"" + std::string(kCats[kind & 7]) +
            "\",\"name\":\"" + kNames[kind >> 3 & 7] +
            "\",\"pid\":" + std::to_string(ids & 3) +
            ",\"tid\":" + std::to_string(ids >> 2 & 3) + ",\"ts\":" +
            (when > 250 ? kTimes[when - 250] : std::to_string(t)) +
            ",\"dur\":" + std::to_string(length) + ".5,\"args\":{" +
            "\"correlation\":" + std::to_string(ids >> 4) +
            ",\"stream\":7,\"device\":" + std::to_string(kind >> 6) + "}}";
  }
  return text + "]}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingero::import;
  if (size < 4) return 0;
  static const int fd = memfd_create("trace", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  static const struct Folder {
    std::string path = "/tmp/ingero-kineto-fuzz-XXXXXX";
    Folder() {
      if (mkdtemp(path.data()) == nullptr) path.clear();
    }
    ~Folder() {
      std::error_code ignored;
      if (!path.empty()) std::filesystem::remove_all(path, ignored);
    }
  } made;
  const std::string& folder = made.path;
  Bytes in(data, size);
  const uint8_t how = in.Next();
  const size_t place = in.Next() * 256u + in.Next();
  const uint8_t other = in.Next();
  std::string text = Trace(&in);
  if (how & 1) text[place % text.size()] = static_cast<char>(other);
  if (how & 2) text.resize(place % text.size());
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, text.data(), text.size(), 0) !=
          static_cast<ssize_t>(text.size()))
    return 0;
  auto events = ReadKineto(path, nullptr);
  if (!events.ok()) {
    if (events.status().message().find('\n') != std::string::npos) abort();
    return 0;
  }
  if (folder.empty()) return 0;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
    std::filesystem::remove(file.path(), ignored);
  (void)WriteStreams(std::move(*events), folder);
  return 0;
}
