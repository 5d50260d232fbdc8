// SPDX-License-Identifier: Apache-2.0
#include "cli/mcp/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/text.h"

namespace ingero::cli::mcp {
namespace {

// Newest last; an unknown one gets the newest.
constexpr std::array<std::string_view, 4> kVersions = {
    "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
constexpr size_t kMaxStringBytes = 600;
constexpr size_t kMaxWaiting = 100;
// The store is opened once for each that runs at the same time.
constexpr size_t kWorkers = 4;

// JSON-RPC 2.0, section 5.1; -32002: MCP, resource not found.
enum ErrorCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kInvalidParams = -32602,
  kInternalError = -32603,
  kResourceNotFound = -32002,
};

struct RpcError : std::runtime_error {
  RpcError(ErrorCode c, const std::string& what)
      : std::runtime_error(what), code(c) {}
  ErrorCode code;
};

bool IsId(const Json& id) { return id.is_string() || id.is_number_integer(); }

Json ErrorMessage(const Json& id, ErrorCode code, const std::string& what) {
  return {{"jsonrpc", "2.0"},
          {"id", id},
          {"error", {{"code", static_cast<int>(code)}, {"message", what}}}};
}

const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(name);
  return it == object.end() ? kNull : *it;
}
std::string StringMember(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

// What is wrong with the arguments, by the part of JSON schema that our tools
// use: type, required, properties, minimum, maximum, enum.
std::string WrongArgument(const Json& schema, const Json& arguments) {
  const Json& properties = schema["properties"];
  for (const auto& [name, value] : arguments.items()) {
    const Json& property = Member(properties, name.c_str());
    if (property.is_null()) {
      std::vector<std::string> known;
      for (const auto& [k, unused] : properties.items()) known.push_back(k);
      return fmt::format("there is no argument '{}'; there are: {}",
                         SanitizeForTerminal(name, 80),
                         fmt::join(known, ", "));
    }
    const std::string type = property["type"];
    if (!((type == "string" && value.is_string()) ||
          (type == "integer" && value.is_number_integer()) ||
          (type == "boolean" && value.is_boolean())))
      return fmt::format("'{}' must be of type {}", name, type);
    if (property.contains("minimum") &&
        value.get<int64_t>() < property["minimum"].get<int64_t>())
      return fmt::format("'{}' must be at least {}", name,
                         property["minimum"].get<int64_t>());
    if (property.contains("maximum") &&
        value.get<int64_t>() > property["maximum"].get<int64_t>())
      return fmt::format("'{}' must be at most {}", name,
                         property["maximum"].get<int64_t>());
  }
  for (const Json& name : Member(schema, "required"))
    if (!arguments.contains(name.get<std::string>()))
      return fmt::format("'{}' is missing", name.get<std::string>());
  return "";
}

}  // namespace

bool IsKnownVersion(std::string_view version) {
  return std::find(kVersions.begin(), kVersions.end(), version) !=
         kVersions.end();
}

Json Harmless(const Json& value) {
  if (value.is_string())
    return SanitizeForTerminal(value.get_ref<const std::string&>(),
                               kMaxStringBytes);
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& element : value) out.push_back(Harmless(element));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [name, element] : value.items())
      out[SanitizeForTerminal(name, kMaxStringBytes)] = Harmless(element);
    return out;
  }
  return value;
}

class Session::RunningJob : public Running {
 public:
  RunningJob(Session* session, Job* job) : session_(session), job_(job) {
    token_ = Member(Member(Member(job->request, "params"), "_meta"),
                    "progressToken");
  }
  bool cancelled() const override { return job_->cancelled; }
  void Progress(uint64_t done, const std::string& what) override {
    const auto now = std::chrono::steady_clock::now();
    if (!IsId(token_) || now - said_ < std::chrono::seconds(1)) return;
    said_ = now;
    // It must rise each time.
    last_ = std::max(done, last_ + 1);
    session_->Send({{"jsonrpc", "2.0"},
                    {"method", "notifications/progress"},
                    {"params",
                     {{"progressToken", token_},
                      {"progress", last_},
                      {"message", what}}}});
  }

 private:
  Session* session_;
  Job* job_;
  Json token_;
  uint64_t last_ = 0;
  std::chrono::steady_clock::time_point said_ =
      std::chrono::steady_clock::now();
};

Session::Session(const Offer& offer,
                 std::function<void(const std::string&)> send)
    : offer_(offer), send_(std::move(send)) {}

Session::~Session() {
  CancelAll();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Session::CancelAll() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  for (const auto& job : running_) job->cancelled = true;
}

void Session::Abandon(const std::string& why) {
  std::vector<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : running_)
      if (!job->cancelled.exchange(true)) left.push_back(job);
    left.insert(left.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
  }
  for (const auto& job : left)
    Send(ErrorMessage(job->request["id"], kInternalError, why));
}

void Session::Send(const Json& message) {
  const std::lock_guard lock(send_mutex_);
  // ASCII only: what a terminal or a log could take for more than text, and
  // bytes that are no UTF-8, leave as escapes.
  send_(message.dump(-1, ' ', true, Json::error_handler_t::replace));
}

void Session::Refuse(const std::string& why) {
  Send(ErrorMessage(nullptr, kInvalidRequest, why));
}

bool Session::WaitIdle(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] {
    return waiting_.empty() && running_.empty();
  });
}

void Session::Receive(std::string_view text) {
  Json message = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (message.is_discarded()) {
    Send(ErrorMessage(nullptr, kParseError,
                      "this line is no JSON; send one message a line"));
  } else if (message.is_array()) {
    // A batch (2025-03-26): each is answered as it comes, in its own message.
    if (message.empty())
      Send(ErrorMessage(nullptr, kInvalidRequest, "an empty batch"));
    for (Json& one : message) ReceiveOne(std::move(one));
  } else {
    ReceiveOne(std::move(message));
  }
}

void Session::ReceiveOne(Json message) {
  const Json& id = Member(message, "id");
  const std::string method = StringMember(message, "method");
  if (!message.is_object() || StringMember(message, "jsonrpc") != "2.0" ||
      (method.empty() && !message.contains("result") &&
       !message.contains("error"))) {
    Send(ErrorMessage(IsId(id) ? id : Json(nullptr), kInvalidRequest,
                      "not a JSON-RPC 2.0 request"));
    return;
  }
  if (method.empty()) return;  // an answer: we ask nothing
  if (!message.contains("id")) {
    if (method == "notifications/cancelled")
      Cancel(Member(Member(message, "params"), "requestId"));
    return;
  }
  if (!IsId(id)) {
    Send(ErrorMessage(nullptr, kInvalidRequest,
                      "the id must be a string or an integer"));
    return;
  }
  if (method == "ping") {
    Send({{"jsonrpc", "2.0"}, {"id", id}, {"result", Json::object()}});
    return;
  }
  // What follows it in the same write relies on it.
  if (method == "initialize") {
    Send({{"jsonrpc", "2.0"},
          {"id", id},
          {"result", Initialize(Member(message, "params"))}});
    return;
  }
  auto job = std::make_shared<Job>();
  job->request = std::move(message);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back(std::move(job));
      if (idle_ < waiting_.size() && workers_.size() < kWorkers)
        workers_.emplace_back([this] { Work(); });
      changed_.notify_all();
      return;
    }
  }
  Send(ErrorMessage(job->request["id"], kInternalError,
                    fmt::format("{} requests wait already; ask again later",
                                kMaxWaiting)));
}

void Session::Cancel(const Json& id) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : running_)
    if (job->request["id"] == id) job->cancelled = true;
  std::erase_if(waiting_, [&](const std::shared_ptr<Job>& job) {
    return job->request["id"] == id;
  });
}

void Session::Work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      ++idle_;
      changed_.wait(lock, [this] { return end_ || !waiting_.empty(); });
      --idle_;
      if (end_) return;
      job = waiting_.front();
      waiting_.pop_front();
      running_.push_back(job);
    }
    const Json id = job->request["id"];
    Json message;
    try {
      RunningJob running(this, job.get());
      message = {{"jsonrpc", "2.0"},
                 {"id", id},
                 {"result", Answer(job->request, &running)}};
    } catch (const RpcError& e) {
      message = ErrorMessage(id, e.code, e.what());
    } catch (const std::exception& e) {
      message = ErrorMessage(id, kInternalError, e.what());
    }
    // Who cancelled a request wants no answer to it.
    if (!job->cancelled.exchange(true)) Send(message);
    const std::lock_guard lock(mutex_);
    std::erase(running_, job);
    changed_.notify_all();
  }
}

Json Session::Answer(const Json& request, Running* running) {
  const std::string method = StringMember(request, "method");
  const Json& params = Member(request, "params");
  if (version_ == kNoVersion)
    throw RpcError(kInvalidRequest, "initialize comes first");
  if (method == "tools/list") {
    Json tools = Json::array();
    for (const Tool& tool : offer_.tools)
      tools.push_back(
          {{"name", tool.name},
           {"title", tool.title},
           {"description", tool.description},
           {"inputSchema", tool.input},
           {"annotations",
            {{"title", tool.title},
             {"readOnlyHint", true},
             {"destructiveHint", false},
             {"idempotentHint", true},
             {"openWorldHint", false}}}});
    return {{"tools", tools}};
  }
  if (method == "tools/call") return CallTool(params, running);
  if (method == "resources/list") {
    Json resources = Json::array();
    for (const Resource& r : offer_.resources)
      resources.push_back({{"uri", r.uri},
                           {"name", r.name},
                           {"description", r.description},
                           {"mimeType", r.mime_type}});
    return {{"resources", resources}};
  }
  if (method == "resources/templates/list")
    return {{"resourceTemplates", Json::array()}};
  if (method == "resources/read") {
    const std::string uri = StringMember(params, "uri");
    for (const Resource& r : offer_.resources)
      if (uri == r.uri)
        return {{"contents",
                 Json::array({{{"uri", r.uri},
                               {"mimeType", r.mime_type},
                               {"text", r.read()}}})}};
    throw RpcError(kResourceNotFound,
                   "there is no such resource; resources/list has them");
  }
  if (method == "prompts/list") {
    Json prompts = Json::array();
    for (const Prompt& p : offer_.prompts) {
      Json arguments = Json::array();
      for (const auto& [name, about] : p.arguments)
        arguments.push_back(
            {{"name", name}, {"description", about}, {"required", false}});
      prompts.push_back({{"name", p.name},
                         {"description", p.description},
                         {"arguments", arguments}});
    }
    return {{"prompts", prompts}};
  }
  if (method == "prompts/get") {
    const std::string name = StringMember(params, "name");
    for (const Prompt& p : offer_.prompts)
      if (name == p.name)
        return {{"description", p.description},
                {"messages",
                 Json::array(
                     {{{"role", "user"},
                       {"content",
                        {{"type", "text"},
                         {"text", p.text(Member(params, "arguments"))}}}}})}};
    throw RpcError(kInvalidParams, "there is no such prompt; prompts/list has "
                                   "them");
  }
  throw RpcError(kMethodNotFound, "there is no method '" +
                                      SanitizeForTerminal(method, 80) + "'");
}

Json Session::Initialize(const Json& params) {
  const auto known = std::find(kVersions.begin(), kVersions.end(),
                               StringMember(params, "protocolVersion"));
  version_ = static_cast<size_t>(
      (known == kVersions.end() ? kVersions.end() - 1 : known) -
      kVersions.begin());
  return {{"protocolVersion", kVersions[version_]},
          {"capabilities",
           {{"tools", {{"listChanged", false}}},
            {"resources", Json::object()},
            {"prompts", {{"listChanged", false}}}}},
          {"serverInfo",
           {{"name", "ingero"},
            {"title", "ingero: why the GPU starved"},
            {"version", INGERO_VERSION}}},
          {"instructions", offer_.instructions}};
}

Json Session::CallTool(const Json& params, Running* running) {
  const std::string name = StringMember(params, "name");
  const auto tool =
      std::find_if(offer_.tools.begin(), offer_.tools.end(),
                   [&](const Tool& t) { return name == t.name; });
  if (tool == offer_.tools.end())
    throw RpcError(kInvalidParams, "there is no tool '" +
                                       SanitizeForTerminal(name, 80) +
                                       "'; tools/list has them");
  Json arguments = Member(params, "arguments");
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object())
    throw RpcError(kInvalidParams, "'arguments' must be an object");
  ToolResult result;
  // Wrong arguments are told to the model, which can mend them, not to the
  // protocol.
  if (const std::string wrong = WrongArgument(tool->input, arguments);
      !wrong.empty())
    result = {{{"error", wrong}}, true};
  else
    result = tool->call(arguments, running);
  const Json data = Harmless(result.data);
  Json out = {
      {"content",
       Json::array({{{"type", "text"},
                     {"text", data.dump(-1, ' ', false,
                                        Json::error_handler_t::replace)}}})},
      {"isError", result.failed}};
  if (std::string_view(kVersions[version_]) >= "2025-06-18" && !result.failed)
    out["structuredContent"] = data;
  return out;
}

}  // namespace ingero::cli::mcp
