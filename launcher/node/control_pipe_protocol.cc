// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/control_pipe_protocol.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/env_file.h"

// The JSON library has no std::optional; null is an absent number.
template <>
struct nlohmann::adl_serializer<std::optional<int>> {
  static void to_json(json& json, const std::optional<int>& number) {
    if (number.has_value()) json = *number;
  }
  static void from_json(const json& json, std::optional<int>& number) {
    number = json.is_null() ? std::nullopt : std::optional(json.get<int>());
  }
};

namespace ddprun {

// Members that another version does not send keep their defaults; unknown members are ignored.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Setup, node, names, folder, environment, arguments)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Go, node, node_rank, serve, flags)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PassSignal, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PassStdin, node, bytes, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Hello, control_pipe, protocol, version,
                                                head_address, own_address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Serving, port)
inline void to_json(nlohmann::json& json, const Joined&) { json = nlohmann::json::object(); }
inline void to_json(nlohmann::json& json, const StdinWanted&) { json = nlohmann::json::object(); }
inline void to_json(nlohmann::json& json, const RoundBegun&) { json = nlohmann::json::object(); }
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeVerdict, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Finished, run_id, round, nodes, world_size)

namespace {

using Json = nlohmann::json;

constexpr char kMark = '\x1e';  // ASCII's record separator: no text for people begins with it
constexpr char kOutMark = 'o';
constexpr char kErrMark = 'e';
constexpr char kMessageMark = 'm';
constexpr char kVersion2Mark = 'w';
// The token's line is written and parsed by hand: the JSON library would leave copies of it in
// memory.
constexpr absl::string_view kTokenPrefix = R"({"type":"token","token":")";
constexpr absl::string_view kTokenSuffix = "\"}";

// JSON strings are UTF-8, and arguments may hold any bytes: these are escaped within the strings.
void Escape(Json& json) {
  if (json.is_string()) json = absl::CEscape(json.get_ref<const std::string&>());
  if (!json.is_structured()) return;
  for (Json& member : json) Escape(member);
}

// `depth`: the levels below `json` that are read; deeper ones are of another version.
bool Unescape(Json& json, int depth) {
  std::string bytes;
  if (json.is_string()) {
    if (!absl::CUnescape(json.get_ref<const std::string&>(), &bytes)) return false;
    json = std::move(bytes);
  }
  // No member is one, and one that fits no integer could not be converted.
  if (json.is_number_float()) json = nullptr;
  return depth == 0 || !json.is_structured() ||
         std::all_of(json.begin(), json.end(), [&](Json& one) { return Unescape(one, depth - 1); });
}

std::string Dump(const char* type, Json json) {
  json["type"] = type;
  Escape(json);
  return json.dump();
}

// Null: it is no message.
Json ParseObject(absl::string_view line) {
  Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  const bool has_type = json.is_object() && json.contains("type") && json["type"].is_string();
  if (!has_type || !Unescape(json, /*depth=*/2)) return Json();
  return json;
}

std::optional<NodeMessage> ParseNodeMessage(absl::string_view line) {
  const Json json = ParseObject(line);
  const std::string type = json.is_null() ? "" : json["type"].get<std::string>();
  try {
    if (type == "hello") return json.get<Hello>();
    if (type == "joined") return Joined{};
    if (type == "stdin-wanted") return StdinWanted{};
    if (type == "begun") return RoundBegun{};
    if (type == "verdict") return json.get<NodeVerdict>();
    if (type == "finished") return json.get<Finished>();
    if (type != "serving") return std::nullopt;
    const auto serving = json.get<Serving>();
    if (serving.port > 0 && serving.port <= 65535) return serving;
  } catch (const Json::exception&) {  // a member has another type
  }
  return std::nullopt;
}

// The hello of a ddprun older than version 3: enough to refuse it with both versions named.
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

std::string Encode(const Setup& setup) { return Dump("setup", setup) + "\n"; }

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

std::string Encode(const Go& go) { return Dump("go", go) + "\n"; }

std::string Encode(const PassSignal& signal) { return Dump("signal", signal) + "\n"; }

std::string Encode(const PassStdin& input) { return Dump("stdin", input) + "\n"; }

absl::Status SetupReader::TakeLine(absl::string_view line) {
  absl::string_view digits = line;
  if (absl::ConsumePrefix(&digits, kTokenPrefix) && absl::ConsumeSuffix(&digits, kTokenSuffix)) {
    setup_.token = std::string(digits);
    return absl::OkStatus();
  }
  const Json json = ParseObject(line);
  const std::string type = json.is_null() ? "" : json["type"].get<std::string>();
  try {
    if (type == "setup") json.get_to(setup_);
    if (type == "go") go_ = json.get<Go>();
    if (!type.empty()) return absl::OkStatus();
  } catch (const Json::exception&) {  // a member has another type
  }
  // Without the line: it may be the secret.
  return absl::InvalidArgumentError(
      "--control-pipe reads messages of ddprun -H from stdin, and this is none; use -H instead");
}

std::optional<PassSignal> ParseSignal(absl::string_view line) {
  const Json json = ParseObject(line);
  if (json.is_null() || json["type"] != "signal") return std::nullopt;
  const int signal =
      json.value("signal", Json()).is_number_integer() ? json["signal"].get<int>() : 0;
  return signal > 0 ? std::optional(PassSignal{signal}) : std::nullopt;
}

std::optional<PassStdin> ParseStdin(absl::string_view line) {
  const Json json = ParseObject(line);
  if (json.is_null() || json["type"] != "stdin") return std::nullopt;
  try {
    return json.get<PassStdin>();
  } catch (const Json::exception&) {  // a member has another type
    return std::nullopt;
  }
}

std::string ToLine(const NodeMessage& message) {
  constexpr const char* kTypes[] = {"hello",    "serving",      "joined", "verdict",
                                    "finished", "stdin-wanted", "begun"};
  const Json json = std::visit([](const auto& one) { return Json(one); }, message);
  return absl::StrCat(std::string({kMark, kMessageMark}), Dump(kTypes[message.index()], json));
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
