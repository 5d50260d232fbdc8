// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/otlp.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <random>

#include "base/file.h"
#include "base/text.h"
#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

constexpr int kExporterNice = 10;  // after all that records
constexpr size_t kMostHeaders = 32, kMostHeaderBytes = 4096;
constexpr Ns kShortestEvery = kSecond / 10;

Ns Now() { return Ns(static_cast<int64_t>(NowNs())); }

template <typename T>
std::optional<T> Number(std::string_view text) {
  T n{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return n;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string_view Trim(std::string_view text) { return TrimWhitespace(text); }

// "a%20b" -> "a b"; as it is where that is no such code.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const auto [end, error] = std::from_chars(
          text.data() + i + 1, text.data() + i + 3, code, 16);
      if (error == std::errc() && end == text.data() + i + 3) {
        out += static_cast<char>(code);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

// "key=value,key=value", as W3C baggage without its properties.
Result<std::vector<std::pair<std::string, std::string>>> ReadPairs(
    const char* variable, std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::string_view pair = Trim(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), text.find(',') == text.npos
                                                 ? text.size()
                                                 : text.find(',') + 1));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == pair.npos || Trim(pair.substr(0, equals)).empty())
      return Status::Error(std::string(variable) +
                           ": has a part that is not KEY=VALUE; write for "
                           "example 'authorization=Bearer%20...'");
    pairs.emplace_back(Trim(pair.substr(0, equals)),
                       Unescaped(Trim(pair.substr(equals + 1))));
  }
  return pairs;
}

bool IsToken(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("!#$%&'*+-.^_`|~").find(c) !=
                      std::string_view::npos;
         });
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Status ReadUrl(std::string_view url, bool signal, OtlpOptions* o) {
  const std::string text(url);
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://"))
    return Status::Error(
        text + ": ingero-kprobe speaks no TLS; send to a collector on this "
               "machine (http://127.0.0.1:4318), which forwards with TLS");
  const auto bad = [&text] {
    return Status::Error("'" + text +
                         "' is not an address of a collector; write for "
                         "example http://127.0.0.1:4318");
  };
  if (!url.starts_with(kScheme)) return bad();
  url.remove_prefix(kScheme.size());
  const size_t slash = url.find_first_of("/?#");
  std::string_view authority = url.substr(0, slash);
  o->path = slash == url.npos ? "" : std::string(url.substr(slash));
  if (authority.find('@') != authority.npos)
    return Status::Error(
        "an address of a collector has no password in it; set "
        "OTEL_EXPORTER_OTLP_HEADERS='authorization=Basic%20...'");
  size_t colon = authority.rfind(':');
  if (authority.ends_with(']')) colon = authority.npos;
  o->host = authority.substr(0, colon);
  // As for any such address: where no port is told, HTTP's.
  o->port = 80;
  if (colon != authority.npos) {
    const auto port = Number<int>(authority.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return bad();
    o->port = *port;
  }
  if (o->host.empty()) return bad();
  for (const char c : o->host + o->path)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return bad();
  if (o->path.find_first_of("?#") != o->path.npos) return bad();
  // One of the signal is taken as it is, a base gets the signal's path.
  constexpr std::string_view kPath = "/v1/metrics";
  if (signal && o->path.empty()) o->path = "/";
  if (!signal && !o->path.ends_with(kPath)) {
    while (o->path.ends_with('/')) o->path.pop_back();
    o->path += kPath;
  }
  return {};
}

// Its value, of the metrics' own variable before that of all signals.
struct Setting {
  const char* variable;
  const char* value;
};
std::optional<Setting> SettingOf(const Environment& env, const char* own,
                                 const char* all) {
  for (const char* variable : {own, all})
    if (const char* value = env(variable); value != nullptr && *value != '\0')
      return Setting{variable, value};
  return std::nullopt;
}

Result<Ns> Milliseconds(const Setting& s) {
  const auto ms = Number<int64_t>(Trim(s.value));
  if (!ms || *ms < 1 || *ms > 86'400'000)
    return Status::Error(std::string(s.variable) + ": '" + s.value +
                         "' is not a number of milliseconds");
  return kMillisecond * *ms;
}

// What came of one request.
struct Outcome {
  bool ok = false;
  bool again = false;  // a later try may do better
  std::optional<Ns> retry_after;
  std::string why;  // "" = nothing to say
};

// A socket that is connected, or trying to be.
class Connection {
 public:
  Connection(int stop, Ns deadline) : stop_(stop), deadline_(deadline) {}

  // ready: POLLIN or POLLOUT. False: the time is over, or the end has come.
  bool Wait(short ready) {
    while (true) {
      const Ns left = deadline_ - Now();
      if (left <= Ns(0)) return false;
      pollfd fds[] = {{socket_.get(), ready, 0}, {stop_, POLLIN, 0}};
      const int n = poll(fds, stop_ < 0 ? 1 : 2,
                         static_cast<int>(left.value / 1'000'000) + 1);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0 && fds[0].revents != 0) return true;
      if (n > 0) {
        stopped_ = true;
        return false;
      }
    }
  }
  // "" = connected.
  std::string Connect(const addrinfo* to) {
    int error = EADDRNOTAVAIL;
    for (; to != nullptr; to = to->ai_next) {
      socket_ = Fd(socket(to->ai_family,
                          SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket_.valid()) {
        error = errno;
        continue;
      }
      if (connect(socket_.get(), to->ai_addr, to->ai_addrlen) == 0) return "";
      error = errno;
      if (error != EINPROGRESS) continue;
      if (!Wait(POLLOUT)) return Late();
      socklen_t size = sizeof(error);
      if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
      if (error == 0) return "";
    }
    return strerror(error);
  }
  std::string Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n =
          send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        if (!Wait(POLLOUT)) return Late();
      } else if (errno != EINTR) {
        return strerror(errno);
      }
    }
    return "";
  }
  std::string Receive(OtlpAnswer* answer) {
    std::string bytes;
    char chunk[4096];
    while (true) {
      const ssize_t n = recv(socket_.get(), chunk, sizeof(chunk), 0);
      if (n < 0 && errno == EAGAIN) {
        if (!Wait(POLLIN)) return Late();
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return strerror(errno);
      bytes.append(chunk, static_cast<size_t>(n));
      *answer = ReadOtlpAnswer(bytes, n == 0);
      // What more it says does not matter.
      if (answer->whole || bytes.size() > OtlpExporter::kMaxAnswerBytes)
        return answer->status != 0 ? "" : "its answer is not HTTP";
      if (n == 0)
        return bytes.empty() ? "it closed the connection without an answer"
                             : "its answer was cut";
    }
  }
  bool stopped() const { return stopped_; }

 private:
  std::string Late() const {
    return stopped_ ? "recording ended" : "no answer in time";
  }
  Fd socket_;
  const int stop_;
  const Ns deadline_;
  bool stopped_ = false;
};

}  // namespace

std::string OtlpOptions::url() const {
  return fmt::format("http://{}:{}{}", host, port, path);
}

Result<OtlpOptions> ParseOtlp(std::string_view url, const Environment& env) {
  OtlpOptions o;
  const auto endpoint = SettingOf(env, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
                                  "OTEL_EXPORTER_OTLP_ENDPOINT");
  if (!url.empty()) {
    INGERO_RETURN_IF_ERROR(ReadUrl(url, false, &o));
  } else if (endpoint) {
    const bool signal =
        std::string_view(endpoint->variable).find("METRICS") !=
        std::string_view::npos;
    INGERO_RETURN_IF_ERROR(
        ReadUrl(Trim(endpoint->value), signal, &o).In(endpoint->variable));
  } else {
    INGERO_RETURN_IF_ERROR(ReadUrl("http://localhost:4318", false, &o));
  }
  if (const auto protocol = SettingOf(env, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
                                      "OTEL_EXPORTER_OTLP_PROTOCOL");
      protocol && std::string_view(protocol->value) != "http/json" &&
      std::string_view(protocol->value) != "http/protobuf")
    return Status::Error(std::string(protocol->variable) + ": '" +
                         protocol->value +
                         "' is not spoken by ingero-kprobe; collectors take "
                         "http/json at port 4318");
  if (const auto headers = SettingOf(env, "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
                                     "OTEL_EXPORTER_OTLP_HEADERS")) {
    INGERO_ASSIGN_OR_RETURN(o.headers,
                            ReadPairs(headers->variable, headers->value));
    size_t bytes = 0;
    for (const auto& [name, value] : o.headers) {
      bytes += name.size() + value.size();
      // Never said: a value may be a secret.
      if (!IsToken(name) ||
          std::any_of(value.begin(), value.end(), [](unsigned char c) {
            return c < 0x20 || c == 0x7f;
          }))
        return Status::Error(std::string(headers->variable) +
                             ": has a name or a value that no HTTP header can "
                             "have");
      for (const char* own : {"host", "content-type", "content-length",
                              "connection", "transfer-encoding"})
        if (Lower(name) == own)
          return Status::Error(std::string(headers->variable) + ": " + name +
                               " is ingero-kprobe's to set");
    }
    if (o.headers.size() > kMostHeaders || bytes > kMostHeaderBytes)
      return Status::Error(std::string(headers->variable) + ": is too long");
  }
  if (const auto timeout = SettingOf(env, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
                                     "OTEL_EXPORTER_OTLP_TIMEOUT")) {
    INGERO_ASSIGN_OR_RETURN(o.timeout, Milliseconds(*timeout));
  }
  if (const char* every = env("OTEL_METRIC_EXPORT_INTERVAL");
      every != nullptr && *every != '\0') {
    INGERO_ASSIGN_OR_RETURN(
        o.every, Milliseconds({"OTEL_METRIC_EXPORT_INTERVAL", every}));
    o.every = std::max(o.every, kShortestEvery);
  }
  const auto set = [&o](const std::string& key, const std::string& value) {
    for (auto& [k, v] : o.attributes)
      if (k == key) {
        v = value;
        return;
      }
    o.attributes.emplace_back(key, value);
  };
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  set("service.name", "ingero-kprobe");
  set("service.version", INGERO_VERSION);
  set("service.instance.id", fmt::format("{}:{}", host, getpid()));
  set("host.name", host);
  set("os.type", "linux");
  set("process.pid", std::to_string(getpid()));
  if (const char* more = env("OTEL_RESOURCE_ATTRIBUTES"); more != nullptr) {
    INGERO_ASSIGN_OR_RETURN(const auto pairs,
                            ReadPairs("OTEL_RESOURCE_ATTRIBUTES", more));
    for (const auto& [key, value] : pairs) set(key, value);
  }
  if (const char* name = env("OTEL_SERVICE_NAME");
      name != nullptr && *name != '\0')
    set("service.name", name);
  return o;
}

std::string OtlpJson(const Figures& figures, const OtlpOptions& options,
                     int64_t begin_ns, int64_t now_ns) {
  const auto attribute = [](std::string_view key, std::string_view value) {
    return fmt::format("{{\"key\":{},\"value\":{{\"stringValue\":{}}}}}",
                       Quoted(SanitizeForTerminal(key)),
                       Quoted(SanitizeForTerminal(value)));
  };
  std::string json = "{\"resourceMetrics\":[{\"resource\":{\"attributes\":[";
  const char* separator = "";
  for (const auto& [key, value] : options.attributes) {
    json += separator;
    // The one attribute that is a number.
    json += key == "process.pid"
                ? fmt::format("{{\"key\":\"process.pid\",\"value\":"
                              "{{\"intValue\":\"{}\"}}}}",
                              Number<int64_t>(value).value_or(0))
                : attribute(key, value);
    separator = ",";
  }
  json +=
      "]},\"scopeMetrics\":[{\"scope\":{\"name\":\"ingero-kprobe\","
      "\"version\":" + Quoted(INGERO_VERSION) + "},\"metrics\":[";
  separator = "";
  for (const MetricFamily& m : MetricFamilies(figures)) {
    json += fmt::format("{}{{\"name\":\"{}\",\"description\":{},\"unit\":\"{}\","
                        "\"{}\":{{",
                        separator, m.name, Quoted(m.help), m.unit,
                        m.counter ? "sum" : "gauge");
    // Totals since begin_ns: AGGREGATION_TEMPORALITY_CUMULATIVE.
    if (m.counter) json += "\"aggregationTemporality\":2,\"isMonotonic\":true,";
    json += "\"dataPoints\":[";
    separator = "";
    for (const MetricPoint& p : m.points) {
      json += separator;
      json += "{";
      if (*m.label != '\0')
        json += "\"attributes\":[" + attribute(m.label, p.label_value) + "],";
      if (m.counter)
        json += fmt::format("\"startTimeUnixNano\":\"{}\",", begin_ns);
      json += fmt::format("\"timeUnixNano\":\"{}\",", now_ns);
      // A signed one, and 64-bit integers are texts in JSON.
      if (const auto* n = std::get_if<uint64_t>(&p.value))
        json += fmt::format("\"asInt\":\"{}\"}}",
                            std::min<uint64_t>(*n, INT64_MAX));
      else
        json += fmt::format("\"asDouble\":{}}}", std::get<double>(p.value));
      separator = ",";
    }
    json += "]}}";
    separator = ",";
  }
  return json + "]}]}]}";
}

OtlpAnswer ReadOtlpAnswer(std::string_view bytes, bool closed) {
  OtlpAnswer a;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == bytes.npos) return a;
  const std::string_view head = bytes.substr(0, end + 2);
  std::string_view body = bytes.substr(end + 4);
  // "HTTP/1.1 200 OK"
  if (!head.starts_with("HTTP/1.") || head.size() < 14 || head[8] != ' ') {
    a.whole = true;
    return a;
  }
  const auto status = Number<int>(head.substr(9, 3));
  if (!status || *status < 100 || *status > 599) {
    a.whole = true;
    return a;
  }
  // What precedes the answer proper.
  if (*status < 200) return ReadOtlpAnswer(body, closed);
  a.status = *status;
  std::optional<size_t> length;
  bool chunked = false;
  for (size_t at = head.find("\r\n"); at + 2 < head.size();
       at = head.find("\r\n", at + 2)) {
    std::string_view line = head.substr(at + 2);
    line = line.substr(0, line.find("\r\n"));
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string name = Lower(Trim(line.substr(0, colon)));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (name == "content-length") {
      length = Number<size_t>(value);
    } else if (name == "transfer-encoding") {
      chunked = Lower(value).find("chunked") != std::string::npos;
    } else if (name == "retry-after") {
      // Seconds; a date is taken as not told.
      if (const auto s = Number<uint32_t>(value))
        a.retry_after = kSecond * static_cast<int64_t>(*s);
    }
  }
  a.whole = closed || *status == 204 ||
            (chunked  ? body.find("0\r\n\r\n") != body.npos
             : length ? body.size() >= *length
                      : false);
  constexpr std::string_view kRejected = "\"rejectedDataPoints\"";
  if (const size_t at = body.find(kRejected);
      *status == 200 && at != body.npos) {
    std::string_view number = body.substr(at + kRejected.size());
    number.remove_prefix(
        std::min(number.find_first_of("0123456789"), number.size()));
    a.rejected = Number<uint64_t>(number.substr(
                     0, number.find_first_not_of("0123456789"))).value_or(0);
  }
  return a;
}

// ---- the exporter -----------------------------------------------------------

struct OtlpExporter::Shared {
  explicit Shared(OtlpOptions o) : options(std::move(o)) {}

  const OtlpOptions options;
  Fd stop;  // readable at the end
  std::mutex mutex;
  std::condition_variable ended;
  // Under mutex:
  Figures figures;
  bool last = false;  // figures are the last ones
  bool done = false;
  uint64_t sent = 0, failed = 0;
  std::string last_failure;
};

namespace {

Outcome Send(const OtlpOptions& options, const std::string& body, int stop,
             Ns patience, std::unique_ptr<addrinfo, void (*)(addrinfo*)>* to) {
  Outcome outcome;
  outcome.again = true;
  if (*to == nullptr) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    std::string host = options.host;
    if (host.starts_with('[') && host.ends_with(']'))
      host = host.substr(1, host.size() - 2);
    if (const int error =
            getaddrinfo(host.c_str(), std::to_string(options.port).c_str(),
                        &hints, &found);
        error != 0) {
      outcome.why = options.host + ": " + gai_strerror(error);
      return outcome;
    }
    to->reset(found);
  }
  Connection connection(stop, Now() + patience);
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: ingero-kprobe/"
      INGERO_VERSION "\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n",
      options.path, options.host, options.port, body.size());
  for (const auto& [name, value] : options.headers)
    request += name + ": " + value + "\r\n";
  request += "\r\n" + body;
  OtlpAnswer answer;
  outcome.why = connection.Connect(to->get());
  // Its address may be another one by now.
  if (!outcome.why.empty() && !connection.stopped()) to->reset();
  if (outcome.why.empty()) {
    // One that refuses early answers before it has read all.
    const std::string unsent = connection.Send(request);
    outcome.why = connection.Receive(&answer);
    if (!outcome.why.empty() && !unsent.empty()) outcome.why = unsent;
  }
  if (!outcome.why.empty()) return outcome;
  const int s = answer.status;
  outcome.ok = s >= 200 && s < 300;
  outcome.again = s == 429 || s == 502 || s == 503 || s == 504;
  outcome.retry_after = answer.retry_after;
  if (!outcome.ok)
    outcome.why = fmt::format("it answered {}", s);
  else if (answer.rejected > 0)
    outcome.why = fmt::format("it rejected {} data points", answer.rejected);
  return outcome;
}

}  // namespace

OtlpExporter::OtlpExporter(OtlpOptions options)
    : shared_(std::make_shared<Shared>(std::move(options))) {
  shared_->stop = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

OtlpExporter::~OtlpExporter() {
  if (thread_.joinable()) (void)Finish(shared_->figures);
}

void OtlpExporter::Publish(const Figures& figures) {
  // While they are being read, the last ones stay.
  const std::unique_lock lock(shared_->mutex, std::try_to_lock);
  if (lock.owns_lock()) shared_->figures = figures;
}

void OtlpExporter::Start() {
  thread_ = std::thread([shared = shared_] { Run(shared); });
}

void OtlpExporter::Run(const std::shared_ptr<Shared>& shared) {
  if (setpriority(PRIO_PROCESS, 0, kExporterNice) != 0) {
    // Then as the rest.
  }
  Shared& s = *shared;
  std::minstd_rand random(static_cast<unsigned>(NowNs()));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> to(nullptr, freeaddrinfo);
  const int64_t begin_ns = static_cast<int64_t>(RealNs());
  bool told = false;
  Ns backoff(0), next = Now() + s.options.every;
  bool last = false;
  while (!last) {
    pollfd stop{s.stop.get(), POLLIN, 0};
    while (stop.revents == 0) {
      const Ns left = next - Now();
      if (left <= Ns(0)) break;
      // A poll takes 24 days at most.
      const Ns wait = std::min(left, kSecond * 3600);
      if (poll(&stop, 1, static_cast<int>(wait.value / 1'000'000) + 1) < 0 &&
          errno != EINTR)
        break;
    }
    Figures figures;
    {
      const std::lock_guard lock(s.mutex);
      figures = s.figures;
      last = s.last;
    }
    const Outcome outcome =
        Send(s.options,
             OtlpJson(figures, s.options, begin_ns,
                      static_cast<int64_t>(RealNs())),
             last ? -1 : s.stop.get(), last ? kLastPatience : s.options.timeout,
             &to);
    {
      const std::lock_guard lock(s.mutex);
      // The last one repeats what the end cut short.
      const bool cut = !outcome.ok && !last && s.last;
      if (outcome.ok)
        ++s.sent;
      else if (!cut)
        ++s.failed;
      if (!outcome.ok && !cut) s.last_failure = outcome.why;
      if (cut) continue;
    }
    if (!outcome.why.empty() && !told)
      std::fprintf(stderr,
                   "ingero-kprobe: --otlp: %s: %s; recording goes on, and so "
                   "does trying\n",
                   SanitizeForTerminal(s.options.url()).c_str(),
                   SanitizeForTerminal(outcome.why).c_str());
    told = !outcome.why.empty();
    backoff = outcome.ok || !outcome.again
                  ? Ns(0)
                  : std::clamp(backoff * 2, s.options.every, kMostBackoff);
    Ns wait = s.options.every;
    if (backoff > Ns(0)) {
      // Those that were refused at one time do not come back at one time.
      const int64_t half = backoff.value / 2;
      wait = Ns(half + static_cast<int64_t>(std::uniform_real_distribution<>(
                           0, static_cast<double>(half))(random)));
      wait = std::max(wait, std::min(outcome.retry_after.value_or(Ns(0)),
                                     kMostBackoff));
    }
    next = Now() + wait;
  }
  const std::lock_guard lock(s.mutex);
  s.done = true;
  s.ended.notify_all();
}

std::string OtlpExporter::Finish(const Figures& figures) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->figures = figures;
    shared_->last = true;
  }
  const uint64_t one = 1;
  // Its counter is 0: there is room.
  (void)!write(shared_->stop.get(), &one, sizeof(one));
  std::unique_lock lock(shared_->mutex);
  const bool done = shared_->ended.wait_for(
      lock, std::chrono::nanoseconds((kLastPatience + kSecond).value),
      [this] { return shared_->done; });
  const uint64_t sent = shared_->sent, failed = shared_->failed + !done;
  const std::string why =
      done ? shared_->last_failure : "its name was not found in time";
  lock.unlock();
  // One that waits for DNS ends with the process.
  if (done)
    thread_.join();
  else
    thread_.detach();
  if (failed == 0) return "";
  return fmt::format("{} of {} exports to {} failed, the last because {}",
                     failed, sent + failed, shared_->options.url(), why);
}

}  // namespace ingero::kernel_probe
