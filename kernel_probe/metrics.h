// SPDX-License-Identifier: Apache-2.0
// A recording's figures for Prometheus, while it goes on: GET /metrics, text
// format 0.0.4. Each label has a fixed set of values (kinds of loss, GPUs).
//
// A server of our own, since it lives in a program with privileges whose one
// work must not suffer: at most kClients connections at a time (others wait in
// the kernel's queue), each of kMaxRequestBytes and over after kPatience
// however slowly it asks or reads, on one thread that records nothing. The
// recorder leaves figures with Publish(), which waits for nobody.
//
// Threads:    Publish from one; one within, from Start() to the destructor.
// Invariants: no more than kClients + 3 descriptors.
#ifndef INGERO_KERNEL_PROBE_METRICS_H_
#define INGERO_KERNEL_PROBE_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/http_address.h"
#include "base/status.h"
#include "base/units.h"

namespace ingero::kernel_probe {

struct Figures {
  Ns recording;  // for how long
  uint64_t switches_seen = 0, switches_recorded = 0, switches_left_out = 0;
  uint64_t wakes = 0, pages = 0, task_events = 0;
  std::map<uint32_t, uint64_t> lost;  // by enum ingero_loss
  uint64_t bytes_written = 0;
  uint64_t cuda_with_shim = 0, cuda_without_shim = 0;  // processes alive
  Ns own_cpu;
  Ns probes;                          // estimated
  std::optional<Ns> probes_measured;  // where the kernel was told to
  std::vector<std::pair<uint64_t, uint64_t>> gpu_percent;  // by GPU
};

// The figures as metrics: the one list that Prometheus and OTLP get.
using MetricValue = std::variant<uint64_t, double>;
struct MetricPoint {
  std::string label_value;
  MetricValue value;
};
struct MetricFamily {
  const char* name;
  bool counter;      // else a gauge
  const char* unit;  // UCUM, as OTLP has it
  const char* help;
  const char* label;  // "" = none, and one point
  std::vector<MetricPoint> points;
};
std::vector<MetricFamily> MetricFamilies(const Figures& figures);

// The text of /metrics.
std::string MetricsText(const Figures& figures);

class MetricsServer {
 public:
  static constexpr size_t kClients = 16;
  static constexpr size_t kMaxRequestBytes = 8 << 10;
  static constexpr Ns kPatience{5'000'000'000};

  // Listens, and answers nobody yet. token: "" = none is asked for.
  static Result<std::unique_ptr<MetricsServer>> Listen(
      const HttpAddress& address, std::string token);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;

  const std::string& url() const { return url_; }
  void Publish(const Figures& figures);
  // REQUIRES: one Publish() was before.
  void Start();

 private:
  struct Client {
    Fd socket;
    Ns deadline;
    std::string in, out;
    size_t written = 0;
    bool answered = false;
  };
  MetricsServer() = default;
  void Run();
  void Accept();
  // False: it is over.
  bool Serve(Client* client) const;
  std::string Answer(const std::string& request) const;

  HttpAddress address_;
  std::string token_, url_;
  Fd listener_, stop_;
  std::vector<Client> clients_;
  mutable std::mutex mutex_;
  Figures figures_;  // under mutex_
  std::thread thread_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_METRICS_H_
