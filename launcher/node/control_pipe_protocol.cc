// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/control_pipe_protocol.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/security/env_file.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr char kMark = '\x1e';  // ASCII's record separator: no text for people begins with it
constexpr char kOutMark = 'o';
constexpr char kErrMark = 'e';
constexpr char kMessageMark = 'm';
constexpr char kVersion2Mark = 'w';
// The token's line is made and read by hand: the JSON library would leave copies of it in memory.
constexpr absl::string_view kTokenPrefix = R"({"type":"token","token":")";
constexpr absl::string_view kTokenSuffix = "\"}";

// JSON has no bytes, and arguments may have any: they are escaped within the string.
std::string Text(absl::string_view bytes) { return absl::CEscape(bytes); }

std::vector<std::string> Texts(const std::vector<std::string>& all) {
  std::vector<std::string> texts;
  for (const std::string& bytes : all) texts.push_back(Text(bytes));
  return texts;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The members of a message. One that is absent keeps its default, one that is unknown is ignored;
// one of another type makes the message invalid.
class Members {
 public:
  explicit Members(const Json& json) : json_(json) {}

  bool valid() const { return valid_; }
  std::string Type() const { return json_.value("type", ""); }

  void Read(const char* name, bool& value) {
    if (const Json* found = Find(name)) Check(found->is_boolean()) && (value = found->get<bool>());
  }
  template <typename Integer>
  void ReadNumber(const char* name, Integer& value) {
    if (const Json* found = Find(name); found != nullptr && Check(found->is_number_integer()))
      value = found->get<Integer>();
  }
  void Read(const char* name, std::optional<int>& value) {
    if (Find(name) != nullptr) ReadNumber(name, value.emplace());
  }
  void Read(const char* name, std::string& value) {
    if (const Json* found = Find(name)) ReadText(*found, value);
  }
  void Read(const char* name, std::vector<std::string>& values) {
    const Json* found = Find(name);
    if (found == nullptr || !Check(found->is_array())) return;
    for (const Json& one : *found) ReadText(one, values.emplace_back());
  }

 private:
  const Json* Find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool Check(bool holds) {
    valid_ = valid_ && holds;
    return holds;
  }
  void ReadText(const Json& json, std::string& value) {
    if (Check(json.is_string())) Check(absl::CUnescape(json.get_ref<const std::string&>(), &value));
  }

  const Json& json_;
  bool valid_ = true;
};

Json ParseObject(absl::string_view line) {
  Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  const bool has_type = json.is_object() && json.contains("type") && json["type"].is_string();
  return has_type ? json : Json();
}

std::optional<NodeMessage> ParseNodeMessage(absl::string_view line) {
  const Json json = ParseObject(line);
  if (json.is_null()) return std::nullopt;
  Members members(json);
  const std::string type = members.Type();
  NodeMessage message;
  if (type == "hello") {
    auto& hello = message.emplace<Hello>();
    members.ReadNumber("control_pipe", hello.control_pipe);
    members.ReadNumber("protocol", hello.protocol);
    members.Read("version", hello.version);
    members.Read("head_address", hello.head_address);
    members.Read("own_address", hello.own_address);
  } else if (type == "serving") {
    auto& serving = message.emplace<Serving>();
    members.ReadNumber("port", serving.port);
    if (serving.port <= 0 || serving.port > 65535) return std::nullopt;
  } else if (type == "joined") {
    message.emplace<Joined>();
  } else if (type == "verdict") {
    members.Read("text", message.emplace<NodeVerdict>().text);
  } else if (type == "finished") {
    auto& finished = message.emplace<Finished>();
    members.Read("run_id", finished.run_id);
    members.ReadNumber("round", finished.round);
    members.ReadNumber("nodes", finished.nodes);
    members.ReadNumber("world_size", finished.world_size);
  } else {
    return std::nullopt;
  }
  return members.valid() ? std::optional(std::move(message)) : std::nullopt;
}

// A ddprun of before version 3: enough to refuse it with both versions named.
std::optional<NodeMessage> ParseHelloOfVersion2(absl::string_view line) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ');
  Hello hello;
  if (fields.size() < 4 || fields[0] != "hello" ||
      !absl::SimpleAtoi(fields[1], &hello.control_pipe) ||
      !absl::SimpleAtoi(fields[2], &hello.protocol))
    return std::nullopt;
  hello.version = fields[3];
  return hello;
}

}  // namespace

std::string Encode(const Setup& setup) {
  Json json = {{"type", "setup"},
               {"names", Texts(setup.names)},
               {"folder", Text(setup.folder)},
               {"environment", Texts(setup.environment)},
               {"arguments", Texts(setup.arguments)}};
  if (setup.node.has_value()) json["node"] = *setup.node;
  return Dump(json) + "\n";
}

std::string Encode(const Token& token) {
  std::string digits = ToDigits(token);
  std::string out;
  // One piece of memory, to be wiped.
  out.reserve(kTokenPrefix.size() + digits.size() + kTokenSuffix.size() + 1);
  out.append(kTokenPrefix.data(), kTokenPrefix.size()).append(digits);
  out.append(kTokenSuffix.data(), kTokenSuffix.size()).push_back('\n');
  Wipe(digits);
  return out;
}

std::string Encode(const Go& go) {
  Json json = {{"type", "go"}, {"node", go.node}, {"serve", go.serve}, {"flags", Texts(go.flags)}};
  if (go.node_rank.has_value()) json["node_rank"] = *go.node_rank;
  return Dump(json) + "\n";
}

std::string Encode(const PassSignal& signal) {
  return Dump({{"type", "signal"}, {"signal", signal.signal}}) + "\n";
}

absl::Status SetupReader::TakeLine(absl::string_view line) {
  absl::string_view digits = line;
  if (absl::ConsumePrefix(&digits, kTokenPrefix) && absl::ConsumeSuffix(&digits, kTokenSuffix)) {
    setup_.token = std::string(digits);
    return absl::OkStatus();
  }
  const Json json = ParseObject(line);
  Members members(json);
  const std::string type = json.is_null() ? "" : members.Type();
  if (type == "setup") {
    members.Read("node", setup_.node);
    members.Read("names", setup_.names);
    members.Read("folder", setup_.folder);
    members.Read("environment", setup_.environment);
    members.Read("arguments", setup_.arguments);
  } else if (type == "go") {
    Go& go = go_.emplace();
    members.ReadNumber("node", go.node);
    members.Read("node_rank", go.node_rank);
    members.Read("serve", go.serve);
    members.Read("flags", go.flags);
  }
  if (!type.empty() && members.valid()) return absl::OkStatus();
  // Without the line: it may be the secret.
  return absl::InvalidArgumentError(
      "--control-pipe reads messages of ddprun -H from stdin, and this is none; use -H instead");
}

std::optional<PassSignal> ParseSignal(absl::string_view line) {
  const Json json = ParseObject(line);
  if (json.is_null()) return std::nullopt;
  Members members(json);
  PassSignal signal;
  members.ReadNumber("signal", signal.signal);
  if (members.Type() != "signal" || !members.valid() || signal.signal <= 0) return std::nullopt;
  return signal;
}

std::string ToLine(const NodeMessage& message) {
  Json json;
  if (const auto* hello = std::get_if<Hello>(&message)) {
    json = {{"type", "hello"},
            {"control_pipe", hello->control_pipe},
            {"protocol", hello->protocol},
            {"version", Text(hello->version)},
            {"head_address", Text(hello->head_address)},
            {"own_address", Text(hello->own_address)}};
  } else if (const auto* serving = std::get_if<Serving>(&message)) {
    json = {{"type", "serving"}, {"port", serving->port}};
  } else if (std::holds_alternative<Joined>(message)) {
    json = {{"type", "joined"}};
  } else if (const auto* verdict = std::get_if<NodeVerdict>(&message)) {
    json = {{"type", "verdict"}, {"text", Text(verdict->text)}};
  } else if (const auto* finished = std::get_if<Finished>(&message)) {
    json = {{"type", "finished"},
            {"run_id", Text(finished->run_id)},
            {"round", finished->round},
            {"nodes", finished->nodes},
            {"world_size", finished->world_size}};
  }
  return absl::StrCat(std::string({kMark, kMessageMark}), Dump(json));
}

std::string MarkLine(bool is_error, absl::string_view line) {
  if (is_error) return absl::StrCat(absl::string_view(&kMark, 1), "e", line);
  if (line.empty() || line.front() != kMark) return std::string(line);
  return absl::StrCat(absl::string_view(&kMark, 1), "o", line);
}

std::variant<std::monostate, OutputLine, NodeMessage> ParseLine(absl::string_view line) {
  if (line.size() < 2 || line[0] != kMark) return OutputLine{false, line};
  const absl::string_view rest = line.substr(2);
  if (line[1] == kOutMark) return OutputLine{false, rest};
  if (line[1] == kErrMark) return OutputLine{true, rest};
  std::optional<NodeMessage> message;
  if (line[1] == kMessageMark) message = ParseNodeMessage(rest);
  if (line[1] == kVersion2Mark) message = ParseHelloOfVersion2(rest);
  if (message.has_value()) return *std::move(message);
  return std::monostate{};
}

std::optional<int> TakeLabel(absl::string_view& line) {
  const std::size_t colon = line.find(": ");
  const std::size_t end = colon != absl::string_view::npos      ? colon
                          : !line.empty() && line.back() == ':' ? line.size() - 1  // an empty line
                                                                : absl::string_view::npos;
  int label = 0;
  if (end == absl::string_view::npos ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(line.substr(0, end)), &label) || label < 0) {
    return std::nullopt;
  }
  line.remove_prefix(std::min(line.size(), end + 2));
  return label;
}

}  // namespace ddprun
