// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "launcher/base/flag_names.h"

namespace ddprun {
namespace {

constexpr std::size_t kHelpColumn = 36;

// "--nproc-per-node" -> "PET_NPROC_PER_NODE"
std::string VariableName(const std::string& flag) {
  return absl::StrCat("PET_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}})));
}

}  // namespace

const std::vector<Flag> kSecurityFlags = {
    {"--token-file", 0, "FILE",
     "File with the run's secret (DDPRUN_TOKEN, systemd's credential ddprun-token, "
     "~/.config/ddprun/token). Workers can read your files."},
    {"--tls-cert", 0, "FILE",
     "Certificate of this node, used instead of the secret; requires --tls-key and --tls-ca."},
    {"--tls-key", 0, "FILE", "Private key of that certificate."},
    {"--tls-ca", 0, "FILE", "Certificate authority that signed the certificates of the peers."},
    {"--insecure", 0, nullptr, "Use plain text without a secret; give it on all nodes."},
};

std::string FlagsHelp(absl::Span<const Flag> flags) {
  std::string text;
  for (const Flag& flag : flags) {
    std::string left = flag.letter != 0
                           ? absl::StrCat("  -", std::string(1, flag.letter), ", ", flag.name)
                           : absl::StrCat("  ", flag.name);
    if (flag.value != nullptr) absl::StrAppend(&left, " ", flag.value);
    left.resize(std::max<std::size_t>(left.size() + 2, kHelpColumn), ' ');
    absl::StrAppend(&text, left, flag.help, "\n");
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

const Value* Reader::Find(const char* flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? nullptr : &found->second;
}

bool Reader::Switch(const char* flag) {
  const Value* value = Find(flag);
  if (value == nullptr) return false;
  int number = 0;
  if (absl::SimpleAtoi(value->text, &number)) return number != 0;
  bool answer = false;
  if (!absl::SimpleAtob(value->text, &answer)) Fail(*value, "0 or 1");
  return answer;
}

std::optional<int> Reader::Integer(const char* flag, int min, int max) {
  const Value* value = Find(flag);
  if (value == nullptr) return std::nullopt;
  int number = 0;
  if (!absl::SimpleAtoi(value->text, &number) || number < min || number > max) {
    Fail(*value, absl::StrCat("a whole number from ", min, " to ", max));
  }
  return number;
}

std::string Reader::Text(const char* flag, const char* needed, const std::string& otherwise) {
  const Value* value = Find(flag);
  if (value == nullptr) return otherwise;
  if (value->text.empty()) Fail(*value, needed);
  return value->text;
}

std::optional<std::chrono::milliseconds> Reader::Seconds(const char* flag, double max) {
  const Value* value = Find(flag);
  if (value == nullptr) return std::nullopt;
  return Seconds(*value, max);
}

std::chrono::milliseconds Reader::Seconds(const Value& value, double max) {
  double seconds = 0;
  if (absl::Duration duration; !absl::SimpleAtod(value.text, &seconds)) {
    seconds = absl::ParseDuration(value.text, &duration) ? absl::ToDoubleSeconds(duration) : 0;
  }
  if (!(seconds > 0) || seconds > max) {
    Fail(value,
         absl::StrCat("a number of seconds above 0 and up to ", static_cast<long long>(max)));
    return {};
  }
  return std::chrono::milliseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000)));
}

void Reader::FailChoice(const Value& value, const std::vector<std::string>& names) {
  const auto first = absl::MakeConstSpan(names).first(names.size() - 1);
  Fail(value, absl::StrCat(absl::StrJoin(first, ", "), " or ", names.back()));
}

void Reader::Fail(const Value& value, const std::string& needed) {
  FailWith(absl::StrCat(value.source, " '", value.text, "' is not ", needed));
}

void Reader::FailWith(const std::string& sentence) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(sentence);
}

std::optional<ddprun::Endpoint> Reader::Endpoint(const char* flag, int port_default) {
  const Value* value = Find(flag);
  if (value == nullptr || value->text.empty()) return std::nullopt;
  std::string host = value->text;
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
  ddprun::Endpoint endpoint{host, port_default};
  if (!port.empty())
    well_formed =
        absl::SimpleAtoi(port, &endpoint.port) && endpoint.port >= 0 && endpoint.port < 65536;
  if (!well_formed || host.empty()) {
    Fail(*value, "HOST or HOST:PORT (an IPv6 address with a port in brackets: [::1]:29400)");
    return std::nullopt;
  }
  return endpoint;
}

SecurityOptions Reader::Security() {
  SecurityOptions security;
  security.token_file = Text("--token-file", "a file", "");
  security.tls_cert = Text("--tls-cert", "a file", "");
  security.tls_key = Text("--tls-key", "a file", "");
  security.tls_ca = Text("--tls-ca", "a file", "");
  security.insecure = Switch("--insecure");
  const absl::Status status = CheckSecurityOptions(security);
  if (!status.ok()) FailWith(std::string(status.message()));
  return security;
}

}  // namespace ddprun
