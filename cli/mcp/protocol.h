// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol over any transport: JSON-RPC 2.0 messages in,
// messages out. Source: https://modelcontextprotocol.io/specification, versions
// 2024-11-05 to 2025-11-25.
//
// Threads: Receive() from one thread; requests that may take long run on up to
// kWorkers others, so that a ping, a cancellation or a short question is
// answered meanwhile. Answers come as they are ready. `send` is called from all
// of them, never from two at once.
#ifndef INGERO_CLI_MCP_PROTOCOL_H_
#define INGERO_CLI_MCP_PROTOCOL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/render/json.h"

namespace ingero::cli::mcp {

// Told to a request that runs.
class Running {
 public:
  virtual ~Running() = default;
  virtual bool cancelled() const = 0;
  // Passed on to a client that asked for it, at most once a second.
  virtual void Progress(uint64_t done, const std::string& what) = 0;
};

struct ToolResult {
  Json data;           // an object
  bool failed = false;  // data: {"error": what, where, what to do}
};
struct Tool {
  const char* name;
  const char* title;
  const char* description;
  Json input;  // JSON schema of its arguments
  std::function<ToolResult(const Json& arguments, Running* running)> call;
};
struct Resource {
  const char* uri;
  const char* name;
  const char* description;
  const char* mime_type;
  // An error is thrown as std::runtime_error.
  std::function<std::string()> read;
};
struct Prompt {
  const char* name;
  const char* description;
  std::vector<std::pair<const char*, const char*>> arguments;  // name, about
  std::function<std::string(const Json& arguments)> text;
};
struct Offer {
  const char* instructions;
  std::vector<Tool> tools;
  std::vector<Resource> resources;
  std::vector<Prompt> prompts;
};

class Session {
 public:
  Session(const Offer& offer, std::function<void(const std::string&)> send);
  // Ends what runs (cancelled) and drops what waits.
  ~Session();
  Session(const Session&) = delete;

  // One message, or a batch of them, as text.
  void Receive(std::string_view text);
  // For a text that is no message at all.
  void Refuse(const std::string& why);
  // Ends what runs and drops what waits; none of it is answered.
  void CancelAll();
  // The same, and each is answered with an error that says why.
  void Abandon(const std::string& why);
  // True when all that was received is answered; waits at most that long.
  bool WaitIdle(std::chrono::milliseconds most);

 private:
  static constexpr size_t kNoVersion = SIZE_MAX;
  struct Job {
    Json request;
    std::atomic<bool> cancelled{false};
  };
  class RunningJob;
  void ReceiveOne(Json message);
  void Work();
  Json Answer(const Json& request, Running* running);
  Json Initialize(const Json& params);
  Json CallTool(const Json& params, Running* running);
  void Send(const Json& message);
  void Cancel(const Json& id);

  const Offer& offer_;
  std::function<void(const std::string&)> send_;
  std::atomic<size_t> version_{kNoVersion};  // index; see protocol.cc
  std::mutex send_mutex_, mutex_;
  std::condition_variable changed_;
  // All under mutex_:
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<std::shared_ptr<Job>> running_;
  size_t idle_ = 0;  // workers
  bool end_ = false;
  std::vector<std::thread> workers_;  // as many as were needed so far
};

// Of the protocol: "2025-06-18".
bool IsKnownVersion(std::string_view version);

// Strings of traced programs as data: no control, bidirectional or zero-width
// characters, at most 600 bytes each.
Json Harmless(const Json& value);

}  // namespace ingero::cli::mcp

#endif  // INGERO_CLI_MCP_PROTOCOL_H_
