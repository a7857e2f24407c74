// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "launcher/base/flag_names.h"
#include "launcher/base/limits.h"
#include "proto/text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr std::size_t kHelpColumn = 36;
constexpr double kSecondsPerDay = 24 * 3600;

// "--nproc-per-node" -> "PET_NPROC_PER_NODE"
std::string VariableName(const std::string& flag) {
  return absl::StrCat("PET_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}})));
}

}  // namespace

std::string FlagsHelp(absl::Span<const Flag> flags) {
  std::string text;
  for (const Flag& flag : flags) {
    std::string left = flag.letter != 0
                           ? absl::StrCat("  -", std::string(1, flag.letter), ", ", flag.name)
                           : absl::StrCat("  ", flag.name);
    if (flag.value != nullptr) absl::StrAppend(&left, " ", flag.value);
    left.resize(std::max<std::size_t>(left.size() + 2, kHelpColumn), ' ');
    absl::StrAppend(&text, left, flag.Help(), "\n");
  }
  return text;
}

absl::StatusOr<ParsedFlags> ParseFlags(absl::Span<const Flag> flags,
                                       const std::vector<std::string>& arguments) {
  ParsedFlags parsed;
  CLI::App app;
  app.set_help_flag("");
  app.prefix_command();  // the program and all that follows is not looked at
  app.add_flag("-h,--help", parsed.help);
  app.add_flag("--version", parsed.version);
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> switches;
  for (const Flag& flag : flags) {
    std::string names = flag.name;
    if (flag.letter != 0) absl::StrAppend(&names, ",-", std::string(1, flag.letter));
    if (flag.value == nullptr) {
      app.add_flag(names, switches[flag.name]);
    } else {
      CLI::Option* option = app.add_option(names, texts[flag.name]);
      if (flag.repeats) {
        option->join(kRepeatSeparator);
      } else {
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
  }
  std::vector<std::string> reversed = CanonicalArguments(flags, arguments);
  std::reverse(reversed.begin(), reversed.end());  // as CLI11 wants it
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  parsed.rest = app.remaining();
  for (const Flag& flag : flags) {
    if (app.count(flag.name) == 0) continue;
    parsed.values[flag.name] = {
        flag.value == nullptr ? (switches[flag.name] ? "1" : "0") : texts[flag.name], flag.name};
  }
  return parsed;
}

void AddVariables(absl::Span<const Flag> flags, const GetVariable& get_variable, Values& values) {
  for (const Flag& flag : flags) {
    if (values.count(flag.name) != 0) continue;
    const std::string variable = VariableName(flag.name);
    std::optional<std::string> text = get_variable(variable);
    if (text.has_value()) values[flag.name] = {*std::move(text), variable};
  }
}

std::string Flag::Help() const {
  if (standard == nullptr) return help;
  return absl::StrReplaceAll(help, {{"{}", standard(*this)}});
}

std::vector<std::string> ChoicesOf(const char* value) {
  std::vector<std::string> choices;
  if (value == nullptr || !absl::StrContains(value, '|')) return choices;
  for (const absl::string_view word : absl::StrSplit(value, '|')) {
    if (absl::ascii_islower(static_cast<unsigned char>(word.front()))) choices.emplace_back(word);
  }
  return choices;
}

const Value* Reader::Find(FlagName flag) const {
  const auto found = values_.find(flag.text);
  return found == values_.end() ? nullptr : &found->second;
}

void Reader::Fail(const Value& value, const std::string& needed) {
  FailWith(absl::StrCat(value.source, " '", value.text, "' is not ", needed));
}

void Reader::FailWith(const std::string& sentence) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(sentence);
}

void Reader::Check(const absl::Status& status) {
  if (!status.ok()) FailWith(std::string(status.message()));
}

namespace {

std::vector<std::string> ChoicesOfValue(const Flag& flag) {
  return ChoicesOf(flag.choices != nullptr ? flag.choices : flag.value);
}

// "a file" for FILE.
std::string Needed(const std::string& value) {
  if (value == "ADDRESS") return "an address";
  if (value == "DIR") return "a folder";
  if (value == "ID") return "a name";
  return absl::StrCat("a ", absl::AsciiStrToLower(value));
}

}  // namespace

bool ParseEndpoint(const std::string& text, int port_default, Endpoint& endpoint) {
  std::string& host = endpoint.host = text;
  std::string port;
  bool well_formed = true;
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    well_formed = end != std::string::npos && (end + 1 == host.size() || host[end + 1] == ':');
    if (well_formed) {
      if (end + 1 < host.size()) port = host.substr(end + 2);
      well_formed = end + 1 == host.size() || !port.empty();
      host = host.substr(1, end - 1);
    }
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    const std::size_t colon = host.find(':');
    port = host.substr(colon + 1);
    host.resize(colon);
    well_formed = !port.empty();
  }
  endpoint.port = port_default;
  if (!port.empty())
    well_formed =
        absl::SimpleAtoi(port, &endpoint.port) && endpoint.port >= 0 && endpoint.port < 65536;
  return well_formed && !host.empty();
}

int ReadChoice(Reader& reader, const Flag& flag, const Value& value) {
  const std::vector<std::string> names = ChoicesOfValue(flag);
  const auto found = std::find(names.begin(), names.end(), value.text);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  const auto first = absl::MakeConstSpan(names).first(names.size() - 1);
  reader.Fail(value, absl::StrCat(absl::StrJoin(first, ", "), " or ", names.back()));
  return 0;
}

void ReadInto(Reader& reader, const Flag& flag, const Value& value, bool& to) {
  int number = 0;
  if (flag.value != nullptr) {
    to = ReadChoice(reader, flag, value) != 0;
  } else if (absl::SimpleAtoi(value.text, &number)) {
    to = number != 0;
  } else if (!absl::SimpleAtob(value.text, &to)) {
    reader.Fail(value, "0 or 1");
  }
}

void ReadInto(Reader& reader, const Flag& flag, const Value& value, int& to) {
  if (!absl::SimpleAtoi(value.text, &to) || to < flag.min || to > flag.max) {
    reader.Fail(value, absl::StrCat("a whole number from ", flag.min, " to ", flag.max));
  }
}

void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::string& to) {
  if (value.text.empty()) reader.Fail(value, Needed(flag.value));
  to = value.text;
}

void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::chrono::milliseconds& to) {
  to = {};
  if (flag.or_zero && value.text == "0") return;
  double seconds = 0;
  if (absl::string_view days = value.text; absl::ConsumeSuffix(&days, "d")) {
    if (absl::SimpleAtod(days, &seconds)) seconds *= kSecondsPerDay;
  } else if (absl::Duration duration; !absl::SimpleAtod(value.text, &seconds)) {
    seconds = absl::ParseDuration(value.text, &duration) ? absl::ToDoubleSeconds(duration) : 0;
  }
  if (!(seconds > 0) || seconds > static_cast<double>(flag.max)) {
    return reader.Fail(value, absl::StrCat("a number of seconds above 0 and up to ", flag.max));
  }
  to = std::chrono::milliseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000)));
}

void ReadInto(Reader& reader, const Flag&, const Value& value, std::optional<Endpoint>& to) {
  if (value.text.empty()) return;
  const std::vector<std::string> texts = absl::StrSplit(value.text, ',');
  std::vector<Endpoint> endpoints(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (ParseEndpoint(texts[i], kEndpointPortDefault, endpoints[i]) &&
        (texts.size() == 1 || endpoints[i].port != 0))
      continue;
    return reader.Fail(value,
                       "HOST or HOST:PORT (an IPv6 address with a port in brackets: [::1]:29400)");
  }
  if (endpoints.size() > kServicesMax) {
    return reader.FailWith(absl::StrCat(value.source, " names ", endpoints.size(),
                                        " services; give ", kServicesMax, " at most"));
  }
  to = std::move(endpoints.front());
  to->others.assign(std::make_move_iterator(endpoints.begin() + 1),
                    std::make_move_iterator(endpoints.end()));
}

std::string EndpointText(const Endpoint& endpoint) {
  std::string text = HostPort(endpoint.host, endpoint.port);
  for (const Endpoint& other : endpoint.others)
    absl::StrAppend(&text, ",", HostPort(other.host, other.port));
  return text;
}

std::string DefaultText(const Flag&, int value) { return absl::StrCat(value); }
std::string DefaultText(const Flag&, const std::string& value) { return value; }
std::string DefaultText(const Flag&, std::chrono::milliseconds value) {
  if (value.count() % 1000 != 0) return absl::StrCat(value.count(), "ms");
  return absl::StrCat(value.count() / 1000);
}
std::string DefaultChoice(const Flag& flag, std::int64_t choice) {
  const std::vector<std::string> names = ChoicesOfValue(flag);
  const auto index = static_cast<std::size_t>(choice);
  return index < names.size() ? names[index] : "";
}

}  // namespace ddprun
