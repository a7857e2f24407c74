// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/limits.h"
#include "proto/version.h"

namespace ddprun {
namespace {

constexpr char kSeeHelp[] = "; see ddprun status --help";
constexpr double kTimeoutSecondsMax = 3600;

std::string StatusHelp() {
  return absl::StrCat(
      "Usage: ddprun status --rdzv-endpoint HOST[:PORT] [FLAGS]\n\n"
      "Shows the runs of a rendezvous service: their nodes and ranks, how far they are, what they "
      "wait for and why\n"
      "the last round ended. Exit codes: 0; 1 where the service is not reached or knows no such "
      "run; 2 for a wrong\n"
      "command line.\n\n",
      FlagsHelp(StatusFlags()),
      "  -h, --help                        print this\n\n"
      "  ddprun status --rdzv-endpoint head:29400 --rdzv-id job7\n");
}

absl::Status FindService(Reader& reader, StatusOptions& options) {
  const std::optional<Endpoint> endpoint = reader.Endpoint("--rdzv-endpoint", kEndpointPortDefault);
  const std::string address = reader.Text("--master-addr", "an address", "");
  const int port = reader.Integer("--master-port", 1, 65535).value_or(kPortDefault);
  if (!reader.status().ok()) return reader.status();
  if (endpoint.has_value() && endpoint->port == 0) {
    return absl::InvalidArgumentError("--rdzv-endpoint needs the port of the service, not 0");
  }
  if (endpoint.has_value()) {
    options.service = *endpoint;
  } else if (!address.empty()) {
    options.service = {address, port};
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "which rendezvous service? give --rdzv-endpoint HOST[:PORT], or --master-addr", kSeeHelp));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Flag> StatusFlags() {
  std::vector<Flag> flags = {
      {"--rdzv-endpoint", 0, "HOST[:PORT]", "where the rendezvous service is (port 29400)"},
      {"--master-addr", 0, "ADDRESS", "or, of runs that were started with it: node 0"},
      {"--master-port", 0, "PORT", "and its port (29500)"},
      {"--rdzv-id", 0, "ID", "this run only; all of the service without it"},
      {"--json", 0, nullptr, "for programs"},
      {"--timeout", 0, "SECONDS", "how long to wait for an answer (5)"},
  };
  flags.insert(flags.end(), kSecurityFlags.begin(), kSecurityFlags.end());
  return flags;
}

absl::StatusOr<std::variant<StatusOptions, ShowText>> ParseStatusOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  absl::StatusOr<ParsedFlags> flags = ParseFlags(StatusFlags(), arguments);
  if (!flags.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(flags.status().message(), kSeeHelp));
  }
  if (flags->help) return ShowText{StatusHelp()};
  if (flags->version) return ShowText{absl::StrCat("ddprun ", kSoftwareVersion, "\n")};
  if (!flags->rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ddprun status does not know '", flags->rest.front(),
                     "'; to run a program of the name status: ddprun -- status", kSeeHelp));
  }
  AddVariables(StatusFlags(), get_variable, flags->values);
  Reader reader(flags->values);
  StatusOptions options;
  if (absl::Status status = FindService(reader, options); !status.ok()) return status;
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  options.json = reader.Switch("--json");
  options.timeout = reader.Seconds("--timeout", kTimeoutSecondsMax).value_or(kStatusTimeoutDefault);
  options.security = reader.Security();
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace ddprun
