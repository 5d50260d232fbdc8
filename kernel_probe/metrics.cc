// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/metrics.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>

#include "kernel_probe/clock.h"
#include "wire/wire.h"

namespace ingero::kernel_probe {
namespace {

constexpr int kServerNice = 10;  // after all that records

Ns Now() { return Ns(static_cast<int64_t>(NowNs())); }

double Seconds(Ns t) { return static_cast<double>(t.value) / 1e9; }

struct LossKind {
  uint32_t loss;
  const char* name;
};
// Those that a kernel recording can have.
constexpr LossKind kLosses[] = {
#define X(id, value, kebab, severity, text) {value, kebab},
    INGERO_LOSSES(X)
#undef X
};
bool OfKernel(uint32_t loss) {
  return loss == INGERO_LOSS_WRITE_FAILED ||
         (loss >= INGERO_LOSS_SWITCH_RING_FULL &&
          loss <= INGERO_LOSS_PAGE_RING_FULL);
}

// The value of a header, without its case minded; "" = it is not there.
std::string_view Header(std::string_view request, std::string_view name) {
  const auto lower = [](char c) {
    return std::tolower(static_cast<unsigned char>(c));
  };
  for (size_t at = request.find("\r\n"); at != request.npos;
       at = request.find("\r\n", at + 2)) {
    std::string_view line = request.substr(at + 2);
    line = line.substr(0, line.find("\r\n"));
    const size_t colon = line.find(':');
    if (colon != name.size() ||
        !std::equal(name.begin(), name.end(), line.begin(),
                    [&](char a, char b) { return lower(a) == lower(b); }))
      continue;
    line.remove_prefix(colon + 1);
    while (line.starts_with(' ') || line.starts_with('\t'))
      line.remove_prefix(1);
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    return line;
  }
  return "";
}

std::string Response(std::string_view status, std::string_view type,
                     std::string_view body, bool with_body,
                     std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
      "Connection: close\r\n{}\r\n{}",
      status, type, body.size(), more, with_body ? body : "");
}

Status ListenError(const std::string& where, int error) {
  return Status::Errno(
      where + (error == EADDRINUSE
                   ? " (another program is there; choose another port)"
                   : ""),
      error);
}

}  // namespace

std::vector<MetricFamily> MetricFamilies(const Figures& f) {
  std::vector<MetricFamily> all;
  const auto family = [&](const char* name, bool counter, const char* unit,
                          const char* help, const char* label = "") {
    all.push_back({name, counter, unit, help, label, {}});
  };
  const auto point = [&](MetricValue value, std::string label_value = "") {
    all.back().points.push_back({std::move(label_value), value});
  };
  const auto one = [&](const char* name, bool counter, const char* unit,
                       const char* help, MetricValue value) {
    family(name, counter, unit, help);
    point(value);
  };
  family("ingero_build_info", false, "1", "Version of ingero-kprobe.",
         "version");
  point(uint64_t{1}, INGERO_VERSION);
  one("ingero_recording_seconds", false, "s", "For how long this one records.",
      Seconds(f.recording));
  one("ingero_switches_seen_total", true, "{switch}",
      "Context switches that happened.", f.switches_seen);
  one("ingero_switches_recorded_total", true, "{switch}",
      "Context switches handed to the stream file.", f.switches_recorded);
  one("ingero_switches_left_out_total", true, "{switch}",
      "Context switches of others, not recorded as --tree asks.",
      f.switches_left_out);
  one("ingero_wakes_total", true, "{wake}",
      "Recorded switches to a thread that had been woken.", f.wakes);
  one("ingero_pages_allocated_total", true, "{page}",
      "Pages that the threads of recorded switches were given.", f.pages);
  one("ingero_task_events_total", true, "{event}",
      "Forks, execs, exits and the like written to the stream file.",
      f.task_events);
  family("ingero_lost_total", true, "{event}",
         "What is missing from the stream file, by kind (docs/formats.md).",
         "kind");
  for (const LossKind& kind : kLosses) {
    if (!OfKernel(kind.loss)) continue;
    const auto it = f.lost.find(kind.loss);
    point(it == f.lost.end() ? 0 : it->second, kind.name);
  }
  one("ingero_written_bytes_total", true, "By", "Bytes of the stream file.",
      f.bytes_written);
  family("ingero_cuda_processes", false, "{process}",
         "Running processes that have a CUDA library, by whether the shim is "
         "in them.",
         "shim");
  point(f.cuda_with_shim, "yes");
  point(f.cuda_without_shim, "no");
  family("ingero_probe_seconds_total", true, "s",
         "CPU time that the probes took of all programs: estimated from their "
         "switches, and measured where sysctl kernel.bpf_stats_enabled is 1.",
         "source");
  point(Seconds(f.probes), "estimate");
  if (f.probes_measured) point(Seconds(*f.probes_measured), "kernel");
  one("ingero_own_cpu_seconds_total", true, "s",
      "CPU time of ingero-kprobe itself.", Seconds(f.own_cpu));
  if (!f.gpu_percent.empty()) {
    family("ingero_gpu_utilization_ratio", false, "1",
           "Part of the time in which a kernel ran, as NVML last told.", "gpu");
    for (const auto& [gpu, percent] : f.gpu_percent)
      point(static_cast<double>(percent) / 100, std::to_string(gpu));
  }
  return all;
}

std::string MetricsText(const Figures& f) {
  std::string text;
  for (const MetricFamily& m : MetricFamilies(f)) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", m.name, m.help,
                        m.counter ? "counter" : "gauge");
    for (const MetricPoint& p : m.points) {
      text += m.name;
      if (*m.label != '\0')
        text += fmt::format("{{{}=\"{}\"}}", m.label, p.label_value);
      std::visit([&](auto value) { text += fmt::format(" {}\n", value); },
                 p.value);
    }
  }
  return text;
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::Listen(
    const HttpAddress& address, std::string token) {
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->address_ = address;
  server->token_ = std::move(token);
  const std::string where =
      "listening on " + address.host + ":" + std::to_string(address.port);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error =
          getaddrinfo(address.bare_host().c_str(),
                      std::to_string(address.port).c_str(), &hints, &found);
      error != 0)
    return Status::Error(where + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(found,
                                                             freeaddrinfo);
  const int yes = 1;
  server->listener_ = Fd(
      socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = server->listener_.get();
  if (fd < 0 ||
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd, kClients) != 0)
    return ListenError(where, errno);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  char port[NI_MAXSERV] = "";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port,
                  sizeof(port), NI_NUMERICSERV) != 0)
    return Status::Errno(where, errno);
  server->url_ = "http://" + address.host + ":" + port + "/metrics";
  server->stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_.valid()) return Status::Errno("eventfd", errno);
  return server;
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // Its counter is 0: there is room.
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void MetricsServer::Publish(const Figures& figures) {
  // While they are being read, the last ones stay.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) figures_ = figures;
}

void MetricsServer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void MetricsServer::Run() {
  // Of this thread alone.
  if (setpriority(PRIO_PROCESS, 0, kServerNice) != 0) {
    // Then as the rest.
  }
  while (true) {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    // Who comes when it is full waits in the kernel's queue.
    const bool room = clients_.size() < kClients;
    fds.push_back({room ? listener_.get() : -1, POLLIN, 0});
    Ns first = Now() + kSecond * 3600;
    for (const Client& c : clients_) {
      const bool writes = c.written < c.out.size();
      fds.push_back(
          {c.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      first = std::min(first, c.deadline);
    }
    const Ns wait = std::max(first - Now(), Ns(0));
    const int ready = poll(fds.data(), fds.size(),
                           static_cast<int>(wait.value / 1'000'000) + 1);
    if (ready < 0 && errno != EINTR) return;  // no memory: end, but record on
    if (fds[0].revents != 0) return;
    const Ns now = Now();
    for (size_t i = clients_.size(); i-- > 0;)
      if (now >= clients_[i].deadline ||
          (ready > 0 && fds[i + 2].revents != 0 && !Serve(&clients_[i])))
        clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(i));
    if (ready > 0 && fds[1].revents != 0) Accept();
  }
}

void MetricsServer::Accept() {
  Client client;
  client.socket = Fd(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client.socket.valid()) {
    // Gone again, or no descriptors: not to be tried without a pause.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) usleep(100'000);
    return;
  }
  client.deadline = Now() + kPatience;
  clients_.push_back(std::move(client));
}

bool MetricsServer::Serve(Client* c) const {
  const int fd = c->socket.get();
  if (c->written < c->out.size()) {
    const ssize_t n = send(fd, c->out.data() + c->written,
                           c->out.size() - c->written, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c->written += static_cast<size_t>(n);
    // The end of the answer; then until the client has closed, since what it
    // sent unread would make the kernel drop the answer.
    if (c->written == c->out.size()) shutdown(fd, SHUT_WR);
    return true;
  }
  char chunk[2048];
  const ssize_t n = recv(fd, chunk, sizeof(chunk), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  if (c->answered) return true;
  c->in.append(chunk, static_cast<size_t>(n));
  const bool whole = c->in.find("\r\n\r\n") != std::string::npos;
  if (!whole && c->in.size() <= kMaxRequestBytes) return true;
  c->out = whole ? Answer(c->in)
                 : Response("431 Request Header Fields Too Large", "text/plain",
                            "too long\n", true);
  c->answered = true;
  c->in.clear();
  return true;
}

std::string MetricsServer::Answer(const std::string& request) const {
  const std::string_view text(request);
  const std::string_view line = text.substr(0, text.find("\r\n"));
  const std::string_view method = line.substr(0, line.find(' '));
  std::string_view path =
      line.size() > method.size() ? line.substr(method.size() + 1) : "";
  path = path.substr(0, path.find(' '));
  path = path.substr(0, path.find('?'));
  const bool body = method != "HEAD";
  const auto say = [&](std::string_view status, const std::string& what,
                       std::string_view more = "") {
    return Response(status, "text/plain", what + "\n", body, more);
  };
  if (address_.loopback() && !Header(text, "Host").empty() &&
      !IsLoopbackName(HostOf(Header(text, "Host"))) &&
      HostOf(Header(text, "Host")) != address_.host)
    return say("403 Forbidden",
               "asked under a name that is not this machine's");
  if (!token_.empty() &&
      !SameSecret(Header(text, "Authorization"), "Bearer " + token_))
    return say("401 Unauthorized", "a bearer token is needed",
               "WWW-Authenticate: Bearer\r\n");
  if (method != "GET" && method != "HEAD")
    return say("405 Method Not Allowed", "use GET", "Allow: GET, HEAD\r\n");
  if (path != "/metrics")
    return say("404 Not Found", "the metrics are at /metrics");
  Figures figures;
  {
    const std::lock_guard lock(mutex_);
    figures = figures_;
  }
  return Response("200 OK", "text/plain; version=0.0.4; charset=utf-8",
                  MetricsText(figures), body);
}

}  // namespace ingero::kernel_probe
