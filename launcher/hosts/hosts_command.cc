// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_command.h"

#include <sys/prctl.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/base/signals.h"
#include "launcher/command_line/scheduler_env.h"
#include "launcher/hosts/hosts_run.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/placement/worker_environ.h"
#include "proto/input_file.h"
#include "rendezvous/base/file_limit.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {
namespace {

constexpr int kSshPort = 22;

absl::StatusOr<std::vector<HostEntry>> ReadHostfile(const std::string& path) {
  const absl::StatusOr<InputFile> file = ReadInput(path, kHostfileBytesMax);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("cannot read the hostfile ", path, ": ",
                                                           file.status().message()));
  }
  return ParseHostfile(file->text, absl::StrCat("the hostfile ", path));
}

absl::StatusOr<std::vector<HostEntry>> FindHosts(const Options& options,
                                                 const GetVariable& get_variable) {
  if (options.hosts.srun) return ReadSlurmAllocation(get_variable);
  if (!options.hosts.hostfile.empty()) return ReadHostfile(options.hosts.hostfile);
  return options.hosts.hosts;
}

// The addresses of hosts that are this machine, by the route to another host.
std::vector<std::string> HostAddresses(const HostsPlan& plan) {
  std::vector<std::string> addresses(plan.names.size());
  std::string other;
  for (const Transport& transport : plan.transports) {
    // A node that is reached by ssh reports a better address.
    if (transport.kind == TransportKind::kRsh) {
      other = WithoutUser(plan.names[static_cast<std::size_t>(transport.nodes.front())]);
      break;
    }
  }
  for (const Transport& transport : plan.transports) {
    if (transport.kind != TransportKind::kDirect || other.empty()) continue;
    addresses[static_cast<std::size_t>(transport.nodes.front())] =
        LocalAddressTowards(other, kSshPort).value_or("");
  }
  return addresses;
}

}  // namespace

absl::StatusOr<HostsPlan> PlanHosts(const Options& options, const std::string& own_path,
                                    const GetVariable& get_variable) {
  absl::StatusOr<std::vector<HostEntry>> hosts = FindHosts(options, get_variable);
  if (!hosts.ok()) return hosts.status();
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  // The shell's name of the folder, which may contain links that exist on the other hosts too.
  const std::string shell_folder = get_variable("PWD").value_or("");
  const bool same =
      !shell_folder.empty() && std::filesystem::equivalent(shell_folder, folder, error) && !error;
  return MakeHostsPlan(options, *hosts,
                       {.own_path = own_path,
                        .folder = same ? shell_folder : folder,
                        .run_id = MakeRunId(),
                        .environment = OwnEnviron(),
                        .is_this_machine = IsThisMachine});
}

int RunHosts(const Options& options, const std::string& own_path,
             std::optional<absl::StatusOr<Token>> variable, const GetVariable& get_variable) {
  prctl(PR_SET_DUMPABLE, 0);  // this process holds the secret until the nodes have it
  // A dry run does not create a secret.
  HostsRun::Config config;
  if (!options.dry_run) {
    absl::StatusOr<std::optional<Token>> token =
        OpenToken(options.security, std::move(variable), get_variable);
    if (!token.ok()) return Fail(token.status(), kExitUsage);
    config.token = *std::move(token);
  }
  absl::StatusOr<HostsPlan> plan = PlanHosts(options, own_path, get_variable);
  if (!plan.ok()) return Fail(plan.status(), kExitUsage);
  if (options.dry_run) return Show(HostsPlanText(*plan));
  config.head.addresses = HostAddresses(*plan);
  config.head.plan = *std::move(plan);
  config.head.join_timeout = options.join_timeout;
  config.head.term_timeout = options.stopping.shutdown_timeout;
  config.end_signals = NotIgnored(options.stopping.end_signals);
  config.forwarded_signals = NotIgnored(options.stopping.forwarded_signals);
  config.signal_mask = BlockSignals(Union(config.end_signals, config.forwarded_signals));
  HostsRun run(std::move(config));
  // After HostsRun has taken down the limit that the nodes of this machine are started with.
  RaiseFileLimit();
  return run.Run();
}

}  // namespace ddprun
