// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/command_line.h"

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {
namespace {

constexpr int kPortMax = 65535;
constexpr std::size_t kHelpColumn = 28;

struct ServiceFlag {
  const char* name;
  const char* value;                                                            // null: a switch
  const char* help;                                                             // {} is the default
  std::variant<bool*, int*, std::string*, std::optional<std::string>*> member;  // of `command`
  std::size_t size_max = kPathBytesMax;
  int port_min = 1;
};

std::vector<ServiceFlag> FlagsOf(ServiceCommand& command) {
  return {
      {"--host", "ADDRESS", "listen on this address of this host, or on unix:/PATH ({})",
       &command.host, kNameBytesMax},
      {"--port", "PORT", "listen on this port; 0 selects a free one ({})", &command.port,
       kPathBytesMax, 0},
      {"--rdzv-id", "NAME",
       "run of nodes that join without --rdzv-id; by default such nodes are\nrejected",
       &command.run_id, kNameBytesMax},
      {"--token-file", "FILE",
       "read the runs' secret from this file; all nodes need the same secret\n"
       "(DDPRUN_TOKEN, systemd's credential ddprun-token, or\n~/.config/ddprun/token)",
       &command.security.token_file},
      {"--tls-cert", "FILE", "certificate of the service, instead of the secret; with the next two",
       &command.security.tls_cert},
      {"--tls-key", "FILE", "private key of that certificate", &command.security.tls_key},
      {"--tls-ca", "FILE", "certificate authorities that sign the nodes' certificates",
       &command.security.tls_ca},
      {"--journal", "PLACE",
       "record accepted joins, reports and keys in this folder, or in etcd at\n"
       "etcd://HOST:PORT[,HOST:PORT...][/PREFIX]; a service that is restarted\n"
       "with the same flags continues its runs",
       &command.journal},
      {"--journal-sync", nullptr,
       "flush the journal to the disk before each reply, so that the runs also\n"
       "survive a crash of the machine",
       &command.journal_sync},
      {"--standby", nullptr,
       "with a journal in etcd: where another service leads, wait, and lead when\n"
       "it is gone; nodes name all services in --rdzv-endpoint",
       &command.standby},
      {"--journal-tls-ca", "FILE",
       "certificate authorities of etcd's members; without it plain text", &command.journal_tls.ca},
      {"--journal-tls-cert", "FILE", "certificate for etcd, if it asks for one; with the next",
       &command.journal_tls.cert},
      {"--journal-tls-key", "FILE", "private key of that certificate", &command.journal_tls.key},
      {"--event-log", "FILE", "append the events of all runs as lines of JSON; -: stdout",
       &command.event_log},
      {"--metrics-port", "PORT", "serve Prometheus metrics at http://ADDRESS:PORT/metrics",
       &command.metrics_port},
      {"--metrics-addr", "ADDRESS", "address of this host for the metrics ({})",
       &command.metrics_addr},
      {"--insecure", nullptr, "use plain text without a secret; all nodes need this flag too",
       &command.security.insecure}};
}

absl::Status SetPort(const ServiceFlag& flag, const std::string& value, int& port) {
  if (absl::SimpleAtoi(value, &port) && port >= flag.port_min && port <= kPortMax)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag.name, " '", value, "' is not a port; give 1 to ", kPortMax,
                   flag.port_min == 0 ? ", or 0 for any free one" : ""));
}

absl::Status CheckText(const ServiceFlag& flag, const std::string& value) {
  if (!value.empty() && value.size() <= flag.size_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag.name, " has a value of ", value.size(),
                                                 " bytes; give one of 1 to ", flag.size_max));
}

absl::Status Set(const ServiceFlag& flag, const std::string& value) {
  absl::Status status;
  std::visit(Overloaded{[](bool* on) { *on = true; },
                        [&](int* port) { status = SetPort(flag, value, *port); },
                        [&](auto* text) {
                          *text = value;
                          status = CheckText(flag, value);
                        }},
             flag.member);
  return status;
}

std::string DefaultOf(const ServiceFlag& flag) {
  return std::visit(Overloaded{[](const int* port) { return absl::StrCat(*port); },
                               [](const std::string* text) { return *text; },
                               [](const auto*) { return std::string(); }},
                    flag.member);
}

absl::Status CheckJournal(const ServiceCommand& command) {
  if (IsEtcdAddress(command.journal)) {
    if (absl::Status status = ParseEtcdAddress(command.journal).status(); !status.ok())
      return status;
    if (command.journal_sync) {
      return absl::InvalidArgumentError(
          "--journal-sync is for a folder; etcd flushes each record before it answers");
    }
    if (absl::StartsWith(command.host, "unix:"))
      return absl::InvalidArgumentError("a journal in etcd needs a --host that nodes can reach");
  } else if (command.standby) {
    return absl::InvalidArgumentError(
        "--standby needs a journal in etcd: --journal etcd://HOST:PORT,...");
  } else if (command.journal_sync && command.journal.empty()) {
    return absl::InvalidArgumentError("--journal-sync needs --journal FOLDER; see --help");
  }
  return CheckEtcdTls(command.journal, command.journal_tls);
}

}  // namespace

std::string ServiceUsage() {
  std::string text =
      "Usage: ddprun-rendezvous [--host ADDRESS] [--port PORT] [--rdzv-id NAME] [FLAGS]\n\n"
      "Runs the rendezvous service alone, for runs whose first node does not host it.\n\n";
  const std::string next_line = absl::StrCat("\n", std::string(kHelpColumn, ' '));
  ServiceCommand defaults;
  for (const ServiceFlag& flag : FlagsOf(defaults)) {
    std::string left = absl::StrCat("  ", flag.name);
    if (flag.value != nullptr) absl::StrAppend(&left, " ", flag.value);
    left.resize(kHelpColumn, ' ');
    absl::StrAppend(&text, left,
                    absl::StrReplaceAll(flag.help, {{"{}", DefaultOf(flag)}, {"\n", next_line}}),
                    "\n");
  }
  return absl::StrCat(text, "  --version                 print the version and exit\n",
                      "  --help                    print this help and exit\n");
}

absl::StatusOr<ServiceCommand> ParseServiceCommand(const std::vector<std::string>& arguments) {
  ServiceCommand command;
  const std::vector<ServiceFlag> flags = FlagsOf(command);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    std::string name = arguments[i].substr(0, equals);
    if (absl::StartsWith(name, "--")) std::replace(name.begin(), name.end(), '_', '-');
    if (name == "--help" || name == "-h") {
      command.action = ServiceCommand::Action::kHelp;
      return command;
    }
    if (name == "--version") {
      command.action = ServiceCommand::Action::kVersion;
      return command;
    }
    const auto flag = std::find_if(flags.begin(), flags.end(),
                                   [&](const ServiceFlag& one) { return name == one.name; });
    if (flag == flags.end() || (flag->value == nullptr && equals != std::string::npos)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown argument '", arguments[i], "'; see --help"));
    }
    std::string value;
    if (flag->value != nullptr && equals == std::string::npos) {
      if (++i == arguments.size())
        return absl::InvalidArgumentError(absl::StrCat(name, " needs a value; see --help"));
      value = arguments[i];
    } else if (flag->value != nullptr) {
      value = arguments[i].substr(equals + 1);
    }
    if (absl::Status status = Set(*flag, value); !status.ok()) return status;
  }
  if (absl::Status status = CheckSecurityOptions(command.security); !status.ok()) return status;
  if (absl::Status status = CheckJournal(command); !status.ok()) return status;
  return command;
}

}  // namespace ddprun
