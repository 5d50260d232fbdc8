// SPDX-License-Identifier: Apache-2.0
// The figures of /metrics, sent to an OpenTelemetry collector while recording:
// OTLP/HTTP, JSON encoding (https://opentelemetry.io/docs/specs/otlp/), without
// TLS: a collector on this machine has that, and the credentials.
//
// Sent is what Publish() left last, every so often, and once at the end.
// Counters are totals, so what did not arrive is in what comes next, and nothing
// is kept for a collector that is away. Where the answer is 429, 502, 503 or 504,
// or none, the next try waits twice as long as the one before (at most
// kMostBackoff, at least Retry-After), at random between the half of that and
// all; other answers are final for what was sent.
//
// Threads:    Publish and Finish from one; one within, from Start() on. It asks
//             DNS, so it may outlive the exporter: what it needs is shared.
// Invariants: Publish waits for nobody; one request at a time, over after its
//             timeout; one descriptor.
// Errors:     counted; the first of a row is said on stderr, once.
#ifndef INGERO_KERNEL_PROBE_OTLP_H_
#define INGERO_KERNEL_PROBE_OTLP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "kernel_probe/metrics.h"

namespace ingero::kernel_probe {

struct OtlpOptions {
  std::string host, path;
  int port = 4318;
  Ns every{10'000'000'000};
  Ns timeout{10'000'000'000};  // of a request
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::pair<std::string, std::string>> attributes;  // of the resource
  std::string url() const;
};

// What a variable of the environment holds; nullptr = it is not set.
using Environment = std::function<const char*(const char*)>;

// `url`: as --otlp has it, "" = as the environment says, else the standard's
// default. Honours OTEL_EXPORTER_OTLP_(METRICS_)ENDPOINT, _HEADERS, _TIMEOUT and
// _PROTOCOL, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME.
Result<OtlpOptions> ParseOtlp(std::string_view url, const Environment& env);

// The body of one request. Times: ns since 1970.
std::string OtlpJson(const Figures& figures, const OtlpOptions& options,
                     int64_t begin_ns, int64_t now_ns);

// What an HTTP answer means.
struct OtlpAnswer {
  int status = 0;      // 0 = not an answer
  bool whole = false;  // all of it is there
  std::optional<Ns> retry_after;
  uint64_t rejected = 0;  // data points, of a partial success
};
OtlpAnswer ReadOtlpAnswer(std::string_view bytes, bool closed);

class OtlpExporter {
 public:
  static constexpr Ns kMostBackoff{300'000'000'000};
  static constexpr Ns kLastPatience{2'000'000'000};  // of the last one
  static constexpr size_t kMaxAnswerBytes = 64 << 10;

  explicit OtlpExporter(OtlpOptions options);
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;

  void Publish(const Figures& figures);
  // REQUIRES: one Publish() was before.
  void Start();
  // Sends these once more, in kLastPatience. "12 of 14 ...", where some failed.
  std::string Finish(const Figures& figures);

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_OTLP_H_
