// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "launcher/chaos/fault_table.h"
#include "launcher/ctl/ctl_commands.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Command = CtlOptions::Command;
using Given = GivenToCtl;

std::string Overview() {
  std::string text =
      "Usage: ddpctl COMMAND [FLAGS]\n\n"
      "Controls runs of ddprun through their rendezvous service.\n\n";
  for (const CommandInfo& info : Commands()) {
    absl::StrAppendFormat(&text, "  %-17s %s\n", absl::StrCat(info.name, info.positional),
                          info.summary);
  }
  return absl::StrCat(text,
                      "  doctor            check nodes and network before a run: ddprun doctor\n\n"
                      "See ddpctl COMMAND --help for the flags. Exit codes: 0; 1 if the command "
                      "failed; 2 for an invalid command line.\n");
}

std::vector<Flag> FlagsOf(const CommandInfo& info) {
  if (!info.asks_service) return FlagsIn(info.flags);
  return FlagsIn(info.flags, ServiceFlags(), kSecurityFlags<Given>);
}

std::string HelpText(const CommandInfo& info) {
  return absl::StrCat("Usage: ", info.program, " ", info.name, info.positional, " [FLAGS]\n\n",
                      info.help, info.command == Command::kChaos ? FaultsHelp() : "\n", "\n",
                      FlagsHelp(FlagsOf(info)),
                      "  -h, --help                        Print this.\n");
}

// Flags may precede and follow the positional argument.
absl::StatusOr<ParsedFlags> ParseMixed(const std::vector<Flag>& flags,
                                       std::vector<std::string> arguments,
                                       const GetVariable& get_variable) {
  ParsedFlags all;
  for (bool first = true; first || !arguments.empty(); first = false) {
    absl::StatusOr<ParsedFlags> part = ParseFlags(flags, arguments);
    if (!part.ok()) return part.status();
    for (auto& [name, value] : part->values) all.values[name] = std::move(value);
    all.help = all.help || part->help;
    all.version = all.version || part->version;
    arguments = std::move(part->rest);
    if (arguments.empty()) break;
    all.rest.push_back(arguments.front());
    arguments.erase(arguments.begin());
  }
  AddVariables(flags, get_variable, all.values);
  return all;
}

// Neither endpoint nor socket: no service was named.
absl::StatusOr<ServiceAddress> AddressOf(const Given& given) {
  const std::optional<Endpoint>& endpoint = given.endpoint;
  if (!given.socket.empty()) return ServiceAddress{.endpoint = {}, .socket = given.socket};
  if (endpoint.has_value() && endpoint->port == 0) {
    return absl::InvalidArgumentError("--rdzv-endpoint needs the port of the service, not 0");
  }
  if (endpoint.has_value()) return ServiceAddress{.endpoint = *endpoint, .socket = ""};
  if (!given.master_addr.empty())
    return ServiceAddress{.endpoint = {given.master_addr, given.master_port}, .socket = ""};
  return ServiceAddress();
}

// The argument that is no flag: drain's NODE, promote's HOST, stacks' RANK, the RUN of others.
void ReadPositional(const CommandInfo& info, const std::vector<std::string>& rest,
                    const std::string& see_help, Reader& reader, Given& given) {
  CtlOptions& options = given;
  const std::string name = absl::StrCat(info.program, " ", info.name);
  const std::size_t wanted = info.positional[0] != '\0' ? 1 : 0;
  const auto flag = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& word) { return word[0] == '-'; });
  if (rest.size() > wanted || flag != rest.end()) {
    const bool may_be_program = info.command == Command::kStatus;
    return reader.FailWith(absl::StrCat(
        name, " does not know '", flag != rest.end() ? *flag : rest[wanted], "'",
        may_be_program ? "; to run a program of the name status: ddprun -- status" : "", see_help));
  }
  if (info.command == Command::kDrain) {
    if (rest.empty())
      return reader.FailWith(
          absl::StrCat(name, " needs NODE: its node rank, host or node id", see_help));
    options.node = rest.front();
  }
  if (info.command == Command::kPromote) {
    if (rest.empty())
      return reader.FailWith(absl::StrCat(
          name, " needs HOST[:PORT]: one of those that --rdzv-endpoint names on the nodes",
          see_help));
    ReadInto(reader, ServiceFlags().front(), {.text = rest.front(), .source = "HOST"},
             given.endpoint);
  }
  if (info.command == Command::kStacks && !rest.empty()) {
    int rank = 0;
    if (!absl::SimpleAtoi(rest.front(), &rank) || rank < 0)
      return reader.FailWith(
          absl::StrCat(name, " takes the number of a rank, not '", rest.front(), "'", see_help));
    options.rank = rank;
  }
  if (!absl::StartsWith(info.positional, " [RUN") || rest.empty()) return;
  if (!options.run_id.empty() && options.run_id != rest.front()) {
    return reader.FailWith(absl::StrCat(name, " is asked for run '", rest.front(),
                                        "' and --rdzv-id for '", options.run_id, "'; name one"));
  }
  options.run_id = rest.front();
}

absl::StatusOr<CtlOptions> ReadOptions(const CommandInfo& info, const ParsedFlags& flags,
                                       const std::string& see_help) {
  Reader reader(flags.values);
  Given given;
  given.command = info.command;
  given.refresh = info.command == Command::kTop;
  given.chaos.kinds = *ParseFaultKinds("default");
  reader.Read(info.flags, given);
  reader.Read(ServiceFlags(), given);
  reader.Read(kSecurityFlags<Given>, given);
  if (given.json && given.refresh) {
    reader.FailWith("--json and --watch contradict each other; leave one of them out");
  }
  given.watch.without_stdout = given.only_stderr && !given.only_stdout;
  given.watch.without_stderr = given.only_stdout && !given.only_stderr;
  reader.Check(CheckSecurityOptions(given.security));
  ReadPositional(info, flags.rest, see_help, reader, given);
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<ServiceAddress> service = AddressOf(given);
  if (!service.ok()) return service.status();
  given.service = *std::move(service);
  return CtlOptions(std::move(given));
}

}  // namespace

std::string TargetOf(const ServiceAddress& service) {
  if (!service.socket.empty()) return absl::StrCat("unix:", service.socket);
  return EndpointText(service.endpoint);
}

absl::StatusOr<ServiceAddress> ParseService(const std::string& text) {
  ServiceAddress service;
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    service.socket = std::string(path);
    return service;
  }
  const std::vector<std::string> services = absl::StrSplit(text, ',');
  for (const std::string& one : services) {
    Endpoint endpoint;
    if (!ParseEndpoint(one, kEndpointPortDefault, endpoint))
      return absl::InvalidArgumentError(absl::StrCat("'", one, "' is no HOST:PORT"));
    if (&one == &services.front()) {
      service.endpoint = std::move(endpoint);
    } else {
      service.endpoint.others.push_back(std::move(endpoint));
    }
  }
  return service;
}

std::vector<Flag> StatusFlags() { return FlagsOf(Commands().front()); }

absl::StatusOr<std::variant<CtlOptions, ShowText>> ParseCtlOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  const std::string word = arguments.empty() ? "--help" : arguments.front();
  if (word == "--help" || word == "-h") return ShowText{Overview()};
  if (word == "--version") return ShowText{absl::StrCat("ddpctl ", kSoftwareVersion, "\n")};
  for (const CommandInfo& info : Commands()) {
    if (word != info.name) continue;
    const std::string see_help = absl::StrCat("; see ", info.program, " ", info.name, " --help");
    const absl::StatusOr<ParsedFlags> flags =
        ParseMixed(FlagsOf(info), {arguments.begin() + 1, arguments.end()}, get_variable);
    if (!flags.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(flags.status().message(), see_help));
    }
    if (flags->help) return ShowText{HelpText(info)};
    if (flags->version) return ShowText{absl::StrCat(info.program, " ", kSoftwareVersion, "\n")};
    absl::StatusOr<CtlOptions> options = ReadOptions(info, *flags, see_help);
    if (!options.ok()) return options.status();
    return *std::move(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ddpctl does not know '", word, "'; see ddpctl --help"));
}

}  // namespace ddprun
