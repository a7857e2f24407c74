// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/health_options.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr absl::string_view kBuiltIn = "builtin";

using HealthFlag = FlagOf<HealthRequest>;

void ReadGpuList(Reader&, const Flag&, const Value& value, HealthRequest& request) {
  request.gpus = absl::StrSplit(value.text, ',');
}

void ReadFolders(Reader&, const Flag&, const Value& value, HealthRequest& request) {
  request.folders = absl::StrSplit(value.text, kRepeatSeparator);
}

constexpr HealthFlag kHealthFlags[] = {
    {"--workers", "N", "Only the memory of the first N GPUs has to be free (all).",
     Sets<&HealthRequest::workers>, Between(1, kLocalWorldSizeMax)},
    {"--gpus", "LIST", "Only these of the visible GPUs, as of ddprun.", ReadGpuList},
    {"--folder", "PATH", "Also check the disk of this folder. May be repeated.", ReadFolders,
     FlagTraits{.repeats = true}},
};

// "gpu,disk"; nothing: all.
absl::StatusOr<std::vector<std::string>> ReadChecks(absl::string_view list) {
  const std::vector<std::string> all(std::begin(kHealthCheckNames), std::end(kHealthCheckNames));
  if (list.empty()) return all;
  const std::vector<std::string> checks = absl::StrSplit(list, ',');
  for (const std::string& one : checks) {
    if (std::find(all.begin(), all.end(), one) != all.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", one, "' is no health check; there are ", absl::StrJoin(all, ", ")));
  }
  return checks;
}

bool IsBuiltIn(absl::string_view command) {
  return command == kBuiltIn || absl::StartsWith(command, absl::StrCat(kBuiltIn, ":"));
}

absl::string_view ListOf(absl::string_view command) {
  return command.substr(std::min(command.size(), kBuiltIn.size() + 1));
}

std::string Help() {
  return absl::StrCat(
      "Usage: ddprun health [FLAGS] [CHECK,...]\n\n"
      "Checks whether this machine is fit for a round, as --health-check builtin does before a "
      "node joins and before\neach restart: ",
      absl::StrJoin(kHealthCheckNames, ", "),
      ". Exit codes: 0 if it is; 1, with the reason in the last line; 2\nfor a wrong command "
      "line.\n\n",
      FlagsHelp(HealthFlags()), "  -h, --help                        print this\n\n",
      "  ddprun --health-check builtin train\n"
      "  ddprun --health-check 'ddprun health gpu,disk && ./of-our-site' train\n");
}

}  // namespace

std::vector<Flag> HealthFlags() { return FlagsIn(kHealthFlags); }

absl::StatusOr<std::variant<ShowText, HealthRequest>> ParseHealthRequest(
    const std::vector<std::string>& arguments) {
  const absl::StatusOr<ParsedFlags> parsed = ParseFlags(HealthFlags(), arguments);
  if (!parsed.ok()) return parsed.status();
  if (parsed->help) return ShowText{Help()};
  HealthRequest request;
  Reader reader(parsed->values);
  reader.Read(kHealthFlags, request);
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<std::vector<std::string>> checks = ReadChecks(absl::StrJoin(parsed->rest, ","));
  if (!checks.ok()) return checks.status();
  request.checks = *std::move(checks);
  return request;
}

absl::Status CheckHealthOptions(const HealthOptions& health) {
  if (!IsBuiltIn(health.command)) return absl::OkStatus();
  const absl::Status status = ReadChecks(ListOf(health.command)).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("--health-check=", health.command, ": ", status.message()));
}

std::string HealthCommandLine(const Options& options, const std::string& program, int workers) {
  const std::string& command = options.health.command;
  if (!IsBuiltIn(command)) return command;
  std::string line = absl::StrCat("exec ", ShellQuote(program), " health --workers ", workers);
  if (!options.affinity.gpus.empty()) {
    const std::string list = absl::StrJoin(options.affinity.gpus, ",");
    absl::StrAppend(&line, " --gpus ", ShellQuote(list));
  }
  if (!options.logs.log_dir.empty())
    absl::StrAppend(&line, " --folder ", ShellQuote(options.logs.log_dir));
  return absl::StrCat(line, " ", ListOf(command));
}

}  // namespace ddprun
