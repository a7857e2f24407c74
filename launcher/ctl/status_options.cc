// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/status_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/version.h"

namespace ddprun {
namespace {

constexpr char kSeeHelp[] = "; see ddprun status --help";
constexpr double kWatchIntervalSecondsMax = 3600;

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

}  // namespace

std::vector<Flag> StatusFlags() {
  std::vector<Flag> flags = kServiceFlags;
  flags.push_back({"--json", 0, nullptr, "Print JSON."});
  flags.push_back({"--watch", 0, nullptr, "Refresh the status on a screen until q is pressed."});
  flags.push_back({"--interval", 0, "SECONDS", "Refresh interval (1)."});
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
  absl::StatusOr<ServiceAddress> service = ReadServiceAddress(reader, kSeeHelp);
  if (!service.ok()) return service.status();
  options.service = *std::move(service);
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  options.json = reader.Switch("--json");
  options.watch = reader.Switch("--watch");
  options.interval =
      reader.Seconds("--interval", kWatchIntervalSecondsMax).value_or(kWatchIntervalDefault);
  if (options.json && options.watch) {
    reader.FailWith("--json and --watch contradict each other; leave one of them out");
  }
  options.timeout = ReadServiceTimeout(reader);
  options.security = reader.Security();
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace ddprun
