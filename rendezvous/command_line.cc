// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/command_line.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr int kPortMax = 65535;
constexpr std::size_t kPathBytesMax = 4096;

// The destination of a flag's value; null: not a text flag.
std::string* TextOf(const std::string& flag, ServiceCommand& command) {
  if (flag == "--host") return &command.host;
  if (flag == "--token-file") return &command.security.token_file;
  if (flag == "--tls-cert") return &command.security.tls_cert;
  if (flag == "--tls-key") return &command.security.tls_key;
  if (flag == "--tls-ca") return &command.security.tls_ca;
  if (flag == "--journal") return &command.journal;
  if (flag == "--event-log") return &command.event_log;
  if (flag == "--metrics-addr") return &command.metrics_addr;
  return nullptr;
}

bool IsFlag(const std::string& flag, ServiceCommand& command) {
  return flag == "--port" || flag == "--metrics-port" || flag == "--rdzv-id" ||
         TextOf(flag, command) != nullptr;
}

absl::Status SetFlag(const std::string& flag, const std::string& value, ServiceCommand& command) {
  if (flag == "--port") {
    if (!absl::SimpleAtoi(value, &command.port) || command.port < 0 || command.port > kPortMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--port '", value, "' is not a port; give 1 to ", kPortMax, ", or 0 for any free one"));
    }
  } else if (flag == "--metrics-port") {
    if (!absl::SimpleAtoi(value, &command.metrics_port) || command.metrics_port < 1 ||
        command.metrics_port > kPortMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--metrics-port '", value, "' is not a port; give 1 to ", kPortMax));
    }
  } else if (flag == "--rdzv-id") {
    command.run_id = value;
  } else {
    *TextOf(flag, command) = value;
  }
  const std::size_t size_max =
      flag == "--host" || flag == "--rdzv-id" ? kNameBytesMax : kPathBytesMax;
  if (value.empty() || value.size() > size_max) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " has a value of ", value.size(),
                                                   " bytes; give one of 1 to ", size_max));
  }
  return absl::OkStatus();
}

}  // namespace

const char kServiceUsage[] =
    "Usage: ddprun-rendezvous [--host ADDRESS] [--port PORT] [--rdzv-id NAME] [FLAGS]\n"
    "\n"
    "Runs the rendezvous service alone, for runs whose first node does not host it.\n"
    "\n"
    "  --host ADDRESS   address of this host to listen on (127.0.0.1), or unix:/PATH\n"
    "  --port PORT      port to listen on (29500); 0: any free one\n"
    "  --rdzv-id NAME   the run of nodes that join without --rdzv-id; without it they are refused\n"
    "  --token-file FILE  the runs' secret, the same on all nodes (DDPRUN_TOKEN, systemd's\n"
    "                   credential ddprun-token, or ~/.config/ddprun/token)\n"
    "  --tls-cert FILE  the service's own certificate, in place of the secret; with the next two\n"
    "  --tls-key FILE   its private key\n"
    "  --tls-ca FILE    who must have signed the nodes' certificates\n"
    "  --journal FOLDER  where accepted joins, reports and keys are written down: a service that "
    "was\n"
    "                   killed is started again with the same flags, and the runs never stop\n"
    "  --journal-sync   flush the disk before each answer, to survive the machine's crash as well\n"
    "  --event-log FILE  what happens in all runs, as lines of JSON; -: stdout\n"
    "  --metrics-port PORT  serve metrics for Prometheus at http://ADDRESS:PORT/metrics\n"
    "  --metrics-addr ADDRESS  of this host (127.0.0.1)\n"
    "  --insecure       plain text without a secret, on all nodes too\n"
    "  --version        print the version\n"
    "  --help           print this\n";

absl::StatusOr<ServiceCommand> ParseServiceCommand(const std::vector<std::string>& arguments) {
  ServiceCommand command;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    std::string flag = arguments[i].substr(0, equals);
    if (absl::StartsWith(flag, "--")) std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag == "--help" || flag == "-h") {
      command.action = ServiceCommand::Action::kHelp;
      return command;
    }
    if (flag == "--version") {
      command.action = ServiceCommand::Action::kVersion;
      return command;
    }
    if (flag == "--insecure" && equals == std::string::npos) {
      command.security.insecure = true;
      continue;
    }
    if (flag == "--journal-sync" && equals == std::string::npos) {
      command.journal_sync = true;
      continue;
    }
    if (!IsFlag(flag, command)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown argument '", arguments[i], "'; see --help"));
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value; see --help"));
    }
    const std::string value =
        equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1);
    if (absl::Status status = SetFlag(flag, value, command); !status.ok()) return status;
  }
  if (absl::Status status = CheckSecurityOptions(command.security); !status.ok()) return status;
  if (command.journal_sync && command.journal.empty()) {
    return absl::InvalidArgumentError("--journal-sync needs --journal FOLDER; see --help");
  }
  return command;
}

}  // namespace ddprun
