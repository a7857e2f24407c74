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
    "  --host ADDRESS          listen on this address of this host, or on unix:/PATH (127.0.0.1)\n"
    "  --port PORT             listen on this port; 0 selects a free one (29500)\n"
    "  --rdzv-id NAME          run of nodes that join without --rdzv-id; by default such nodes "
    "are\n"
    "                          rejected\n"
    "  --token-file FILE       read the runs' secret from this file; all nodes need the same "
    "secret\n"
    "                          (DDPRUN_TOKEN, systemd's credential ddprun-token, or\n"
    "                          ~/.config/ddprun/token)\n"
    "  --tls-cert FILE         certificate of the service, instead of the secret; with the next "
    "two\n"
    "  --tls-key FILE          private key of that certificate\n"
    "  --tls-ca FILE           certificate authorities that sign the nodes' certificates\n"
    "  --journal FOLDER        record accepted joins, reports and keys in this folder; a service "
    "that\n"
    "                          is restarted with the same flags continues its runs\n"
    "  --journal-sync          flush the journal to the disk before each reply, so that the runs "
    "also\n"
    "                          survive a crash of the machine\n"
    "  --event-log FILE        append the events of all runs as lines of JSON; -: stdout\n"
    "  --metrics-port PORT     serve Prometheus metrics at http://ADDRESS:PORT/metrics\n"
    "  --metrics-addr ADDRESS  address of this host for the metrics (127.0.0.1)\n"
    "  --insecure              use plain text without a secret; all nodes need this flag too\n"
    "  --version               print the version and exit\n"
    "  --help                  print this help and exit\n";

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
