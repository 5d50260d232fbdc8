// SPDX-License-Identifier: Apache-2.0
#include "cli/mcp/http.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/file.h"

namespace ingero::cli::mcp {
namespace {

constexpr size_t kMaxMessageBytes = 64u << 20;
constexpr size_t kMaxSessions = 32;
constexpr time_t kReadSeconds = 5;
// Between two looks whether a request still runs, and its client listens.
constexpr auto kLook = std::chrono::milliseconds(200);
constexpr const char* kSessionHeader = "Mcp-Session-Id";

std::string RandomId() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return "";
  std::string id;
  for (const unsigned char b : bytes) id += fmt::format("{:02x}", b);
  return id;
}

// What an HTTP request waits for: progress, if it takes that, and its answer.
class Pending {
 public:
  explicit Pending(std::string token) : token_(std::move(token)) {}
  const std::string& token() const { return token_; }
  void Add(const std::string& text, bool last) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(text);
    done_ = done_ || last;
    changed_.notify_all();
  }
  // No answer will come: it was cancelled.
  void End() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  // The next message; "" if none came in that time. *over: nothing more will.
  std::string Next(std::chrono::milliseconds most, bool* over) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most,
                      [this] { return done_ || !messages_.empty(); });
    std::string text;
    if (!messages_.empty()) {
      text = std::move(messages_.front());
      messages_.pop_front();
    }
    *over = done_ && messages_.empty();
    return text;
  }

 private:
  const std::string token_;  // of the progress it takes; "" = none
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  bool done_ = false;
};

// A session, and the requests of HTTP that wait for its answers.
class HttpSession {
 public:
  explicit HttpSession(const Offer& offer)
      : session_(offer, [this](const std::string& text) { Deliver(text); }) {}

  std::shared_ptr<Pending> Begin(const std::string& text, const std::string& id,
                                 const std::string& token) {
    auto pending = std::make_shared<Pending>(token);
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_.emplace(id, pending).second) {
        pending->Add(R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,)"
                     R"("message":"a request with this id runs already"}})",
                     true);
        return pending;
      }
    }
    session_.Receive(text);
    return pending;
  }
  // Cancelled requests are never answered: they end when nothing runs.
  void EndCancelled(const std::string& id, Pending* pending) {
    if (session_.WaitIdle(std::chrono::milliseconds(0))) Forget(id, pending);
  }
  // Nobody waits for it any more.
  void Cancel(const std::string& id, Pending* pending) {
    session_.Receive(
        R"({"jsonrpc":"2.0","method":"notifications/cancelled",)"
        R"("params":{"requestId":)" + id + "}}");
    Forget(id, pending);
  }
  void Tell(const std::string& text) { session_.Receive(text); }
  void CancelAll() { session_.CancelAll(); }

 private:
  void Forget(const std::string& id, Pending* pending) {
    const std::lock_guard lock(mutex_);
    const auto it = waiting_.find(id);
    if (it == waiting_.end() || it->second.get() != pending) return;
    waiting_.erase(it);
    pending->End();
  }
  void Deliver(const std::string& text) {
    const Json message = Json::parse(text, nullptr, false);
    if (!message.is_object()) return;
    const std::lock_guard lock(mutex_);
    if (message.contains("id")) {
      const auto it = waiting_.find(message["id"].dump());
      if (it == waiting_.end()) return;
      it->second->Add(text, true);
      waiting_.erase(it);
      return;
    }
    const std::string token =
        message.value("/params/progressToken"_json_pointer, Json()).dump();
    for (const auto& [id, pending] : waiting_)
      if (pending->token() == token) pending->Add(text, false);
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Pending>> waiting_;  // by id
  Session session_;  // last: its thread ends before the rest goes
};

class HttpServer {
 public:
  HttpServer(const Offer& offer, const HttpAddress& address,
             const std::string& token)
      : offer_(offer), address_(address), token_(token) {
    server_.set_payload_max_length(kMaxMessageBytes);
    // Threads for those who wait and for those who never finish a request.
    server_.new_task_queue = [] { return new httplib::ThreadPool(64); };
    server_.set_read_timeout(kReadSeconds);
    server_.set_keep_alive_timeout(kReadSeconds);
    // Not SO_REUSEPORT, its default: two servers would share a port.
    server_.set_socket_options([](socket_t fd) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return Admit(request, &response)
                     ? httplib::Server::HandlerResponse::Unhandled
                     : httplib::Server::HandlerResponse::Handled;
        });
    server_.Post("/mcp", [this](const httplib::Request& request,
                                httplib::Response& response) {
      Post(request, &response);
    });
    server_.Get("/mcp", [](const httplib::Request&,
                           httplib::Response& response) {
      Say(&response, 405, "nothing is sent unasked; use POST");
      response.set_header("Allow", "POST, DELETE");
    });
    server_.Delete("/mcp", [this](const httplib::Request& request,
                                  httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      response.status =
          sessions_.erase(request.get_header_value(kSessionHeader)) > 0 ? 204
                                                                       : 404;
    });
  }

  Status Run(const std::function<void(const std::string&)>& ready) {
    // c_str(): httplib 0.10 (Ubuntu 22.04) takes no string here.
    const std::string host = address_.bare_host();
    int port = address_.port;
    errno = 0;
    if (port == 0)
      port = server_.bind_to_any_port(host.c_str());
    else if (!server_.bind_to_port(host.c_str(), port))
      port = -1;
    if (port <= 0)
      return Status::Errno(
          fmt::format("listening on {}:{} (another program there? choose "
                      "another port)",
                      address_.host, address_.port),
          errno != 0 ? errno : EADDRNOTAVAIL);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    const Fd signals(signalfd(-1, &set, SFD_CLOEXEC));
    std::thread listener([this] { server_.listen_after_bind(); });
    ready(fmt::format("http://{}:{}/mcp", address_.host, port));
    pollfd fd{signals.get(), POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) continue;
    {
      // What runs is cancelled, so that those who wait for it return.
      const std::lock_guard lock(mutex_);
      for (auto& [id, session] : sessions_) session.first->CancelAll();
    }
    server_.stop();
    listener.join();
    return {};
  }

 private:
  static void Say(httplib::Response* response, int status,
                  const std::string& what) {
    response->status = status;
    response->set_content(what + "\n", "text/plain");
  }

  bool Admit(const httplib::Request& request, httplib::Response* response) {
    const std::string origin = request.get_header_value("Origin");
    if (!origin.empty() && !IsLoopbackName(HostOf(origin)) &&
        HostOf(origin) != address_.host) {
      Say(response, 403, "pages of other origins may not ask here");
      return false;
    }
    const std::string host = request.get_header_value("Host");
    if (address_.loopback() && !IsLoopbackName(HostOf(host))) {
      Say(response, 403, "asked under a name that is not this machine's");
      return false;
    }
    if (!token_.empty() &&
        !SameSecret(request.get_header_value("Authorization"),
                    "Bearer " + token_)) {
      Say(response, 401, "a bearer token is needed");
      response->set_header("WWW-Authenticate", "Bearer");
      return false;
    }
    const std::string version =
        request.get_header_value("MCP-Protocol-Version");
    if (!version.empty() && !IsKnownVersion(version)) {
      Say(response, 400, "an unknown MCP-Protocol-Version");
      return false;
    }
    if (request.path != "/mcp") {
      Say(response, 404, "the server is at /mcp");
      return false;
    }
    return true;
  }

  void Post(const httplib::Request& request, httplib::Response* response) {
    const Json message = Json::parse(request.body, nullptr, false);
    const std::string asked = request.get_header_value(kSessionHeader);
    std::shared_ptr<HttpSession> session;
    if (message.is_object() && message.contains("id") &&
        message.contains("method") && message["method"] == "initialize") {
      const std::string id = RandomId();
      session = std::make_shared<HttpSession>(offer_);
      response->set_header(kSessionHeader, id);
      const std::lock_guard lock(mutex_);
      // The one that began first makes room.
      if (sessions_.size() >= kMaxSessions)
        sessions_.erase(std::min_element(
            sessions_.begin(), sessions_.end(), [](auto& a, auto& b) {
              return a.second.second < b.second.second;
            }));
      sessions_[id] = {session, ++begun_};
    } else {
      const std::lock_guard lock(mutex_);
      const auto it = sessions_.find(asked);
      if (it == sessions_.end()) {
        if (asked.empty())
          Say(response, 400, "initialize first, then send Mcp-Session-Id");
        else
          Say(response, 404, "no such session; initialize again");
        return;
      }
      session = it->second.first;
    }
    if (TakesProgress(request, message)) {
      Stream(std::move(session), message, request.body, response);
      return;
    }
    std::string answer;
    if (message.is_array() && !message.empty()) {  // a batch (2025-03-26)
      for (const Json& one : message)
        if (const std::string text = Ask(session.get(), one, one.dump());
            !text.empty())
          answer += (answer.empty() ? "[" : ",") + text;
      if (!answer.empty()) answer += "]";
    } else {
      answer = Ask(session.get(), message, request.body);
    }
    if (answer.empty())
      response->status = 202;
    else
      response->set_content(answer, "application/json");
  }

  // "" for what is not answered: a notification, or a request that was
  // cancelled. What is no message gets its error without an id.
  static std::string Ask(HttpSession* session, const Json& message,
                         const std::string& text) {
    const bool object = message.is_object();
    if (object && message.contains("method") && !message.contains("id")) {
      session->Tell(text);
      return "";
    }
    const bool has_id = object && message.contains("id") &&
                        (message["id"].is_string() ||
                         message["id"].is_number_integer());
    const std::string key = has_id ? message["id"].dump() : "null";
    const auto pending = session->Begin(text, key, "");
    for (bool over = false;;) {
      std::string answer = pending->Next(kLook, &over);
      if (over) return answer;
      session->EndCancelled(key, pending.get());
    }
  }

  // Asked for a stream of events, and for word of its progress.
  static bool TakesProgress(const httplib::Request& request,
                            const Json& message) {
    return message.is_object() && message.contains("method") &&
           message.contains("id") &&
           (message["id"].is_string() || message["id"].is_number_integer()) &&
           !TokenOf(message).is_null() &&
           request.get_header_value("Accept").find("text/event-stream") !=
               std::string::npos;
  }
  static Json TokenOf(const Json& message) {
    const Json* at = &message;
    for (const char* name : {"params", "_meta", "progressToken"}) {
      if (!at->is_object()) return nullptr;
      const auto it = at->find(name);
      if (it == at->end()) return nullptr;
      at = &*it;
    }
    return *at;
  }

  // The progress and the answer of one request as server-sent events. A client
  // that has gone cannot come back for the answer, so its request is cancelled.
  static void Stream(std::shared_ptr<HttpSession> session, const Json& message,
                     const std::string& text, httplib::Response* response) {
    const std::string key = message["id"].dump();
    const auto pending = session->Begin(text, key, TokenOf(message).dump());
    response->set_header("Cache-Control", "no-cache");
    response->set_chunked_content_provider(
        "text/event-stream",
        [session, pending, key](size_t, httplib::DataSink& sink) {
          bool over = false;
          std::string event = pending->Next(kLook, &over);
          if (!event.empty())
            event = "event: message\ndata: " + event + "\n\n";
          else if (!over)
            event = ": it goes on\n\n";
          if (!event.empty() && !sink.write(event.data(), event.size()))
            return false;
          if (over)
            sink.done();
          else
            session->EndCancelled(key, pending.get());
          return true;
        },
        [session, pending, key](bool whole) {
          if (!whole) session->Cancel(key, pending.get());
        });
  }

  const Offer& offer_;
  const HttpAddress address_;
  const std::string token_;
  httplib::Server server_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::shared_ptr<HttpSession>, uint64_t>>
      sessions_;
  uint64_t begun_ = 0;
};

}  // namespace

Status ServeHttp(const Offer& offer, const HttpAddress& address,
                 const std::string& token,
                 const std::function<void(const std::string& url)>& ready) {
  return HttpServer(offer, address, token).Run(ready);
}

}  // namespace ingero::cli::mcp
