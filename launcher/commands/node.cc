// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/commands.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/dry_run.h"
#include "launcher/agent/warden.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/base/signals.h"
#include "launcher/base/temp_dir.h"
#include "launcher/command_line/settings.h"
#include "launcher/command_line/slurm_job.h"
#include "launcher/command_line/topology_place.h"
#include "launcher/doctor/doctor_run.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/health_options.h"
#include "launcher/output/log_plan.h"
#include "launcher/placement/devices.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/program.h"
#include "proto/output_file.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/own_program.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/process/thread_check.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {
namespace {

// Reports that this node's agent was killed, so that the service removes the node at once and not
// when its lease expires. Called by the warden, which has no gRPC until then, once no worker is
// left. Takes kLossReportTimeout at most.
void ReportAgentLoss(const Options& options, const NodeId& node_id,
                     const std::optional<TlsCredentials>& credentials, const std::string& how) {
  const std::optional<Endpoint> service = ServiceWithoutAgent(options);
  if (!service.has_value()) return;
  const std::string name = EndpointText(*service);
  const LossReport report{
      .protocol_version = kProtocolVersion,
      .run_id = options.run_id,
      .node_id = node_id,
      .reason =
          absl::StrCat("its agent was ", how, "; check dmesg there for the out-of-memory killer")};
  const absl::Status status =
      ReportLoss(MakeServiceChannel(name, credentials, service->host), report, kLossReportTimeout);
  // If nothing listens, the service was inside the agent or ended before it.
  if (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status)) return;
  const double lease = std::chrono::duration<double>(options.lease).count();
  std::fprintf(stderr,
               "ddprun: the rendezvous service at %s could not be informed: %s; the other "
               "nodes notice when the lease (%g s) expires\n",
               name.c_str(), std::string(status.message()).c_str(), lease);
}

constexpr std::chrono::seconds kOutputCheckTimeout{3};

absl::Status CheckVerdictFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status status = CheckOutput(path);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("cannot write the verdict file ", path, ": ",
                                                 status.message(),
                                                 "; name another one with --verdict-file"));
}

absl::Status CheckLogDir(const LogOptions& options) {
  if (options.log_dir.empty() || WantsNoFiles(options)) return absl::OkStatus();
  const auto wrong = [&](absl::string_view what, absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("cannot ", what, " the log folder ",
                                                   options.log_dir, ": ", reason,
                                                   "; name another one with --log-dir"));
  };
  const absl::StatusOr<std::string> folder = FollowLinks(options.log_dir);
  if (!folder.ok()) return wrong("use", folder.status().message());
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  if (error) return wrong("make", error.message());
  if (!std::filesystem::is_directory(options.log_dir, error))
    return wrong("use", std::strerror(ENOTDIR));
  if (access(options.log_dir.c_str(), W_OK | X_OK) != 0)
    return wrong("write to", std::strerror(errno));
  return absl::OkStatus();
}

// Checks --verdict-file and --log-dir, whose folder is made. (--event-log is opened before the node
// joins.) If the disk does not answer in time, the later write reports the error.
absl::Status CheckOutputs(const Options& options) {
  const auto checked = CallWithDeadline<absl::Status>(
      kOutputCheckTimeout, [verdict_file = options.verdict.file, logs = options.logs] {
        absl::Status status = CheckVerdictFile(verdict_file);
        status.Update(CheckLogDir(logs));
        return status;
      });
  return checked.value_or(absl::OkStatus());
}

// Notes are printed only on request, as in torchrun.
void PrintWarnings(const Options& options) {
  const std::string level = ReadVariable("LOGLEVEL").value_or("WARNING");
  for (const std::string& warning : options.warnings)
    std::fprintf(stderr, "ddprun: %s\n", warning.c_str());
  if (level != "INFO" && level != "DEBUG") return;
  for (const std::string& note : options.notes) std::fprintf(stderr, "ddprun: %s\n", note.c_str());
}

int ShowDryRun(const Agent::Config& config, bool has_token_variable) {
  const std::optional<Endpoint>& endpoint = config.options.endpoint;
  return Show(DryRunText({.options = config.options,
                          .programs = config.programs,
                          .places = config.places,
                          .host = HostName(),
                          .topology = config.topology,
                          .endpoint_is_here = endpoint.has_value() && IsThisMachine(endpoint->host),
                          .secret = SecretText(config.options, has_token_variable, ReadVariable),
                          .inherited = OwnEnviron()}));
}

absl::Status CheckPreload(const Agent::Config& config) {
  if (config.options.preload.empty()) return absl::OkStatus();
  const std::string& name = config.options.program.front();
  if (config.programs.size() > 1) {
    return absl::InvalidArgumentError(
        "--preload needs one program for all workers, and there are several; leave it out");
  }
  if (!config.programs.front().is_python) {
    return absl::InvalidArgumentError(
        absl::StrCat("--preload is for Python programs, and ", name,
                     " is not run by Python; name a script (.py), a module (-m), or leave it out"));
  }
  if (ArgumentsOf({.path = "", .argv = {"", name}}, 0).back() != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("--preload needs one program for all workers, and ", name,
                     " is another one for each; leave one of them out"));
  }
  return absl::OkStatus();
}

// The resources of each worker, and the file that it executes. Absent: success; else the exit code.
std::optional<int> FindPlacesAndProgram(Agent::Config& config) {
  const auto machine = ReadMachine(config.options, ReadVariable);
  if (!machine.ok()) return Fail(machine.status(), 1);
  const absl::Status gpus = CheckSlurmGpus(config.options, static_cast<int>(machine->gpus.size()),
                                           machine->visible_devices, ReadVariable);
  if (!gpus.ok()) return Fail(gpus, 1);
  auto places = PlaceWorkers(config.options, *machine);
  if (!places.ok()) return Fail(places.status(), 1);
  config.places = *std::move(places);
  config.health_command =
      HealthCommandLine(config.options, OwnProgram().string(), config.local_world_size());
  for (const ProgramSection* section : SectionsOf(config.options)) {
    absl::StatusOr<Program> program =
        ResolveProgram(*section, OwnProgram().parent_path().string(), ReadVariable);
    if (!program.ok()) {
      return Fail(program.status(),
                  absl::IsNotFound(program.status()) ? kExitNotFound : kExitNotExecutable);
    }
    config.programs.push_back(*std::move(program));
  }
  if (const absl::Status status = CheckPreload(config); !status.ok())
    return Fail(status, kExitUsage);
  const absl::Status wraps = ResolveWraps(config.options, config.local_world_size(), ReadVariable);
  if (!wraps.ok()) {
    return Fail(wraps, absl::IsNotFound(wraps)           ? kExitNotFound
                       : absl::IsPermissionDenied(wraps) ? kExitNotExecutable
                                                         : kExitUsage);
  }
  return std::nullopt;
}

// Derives the certificates of this node from the run's secret. Absent: success; else the exit code.
std::optional<int> OpenSecurity(Agent::Config& config, TokenVariable token) {
  if (UsesNetwork(config.options)) {
    // Keeps the secret out of core files and from debuggers of the same user. Workers do not
    // inherit this.
    prctl(PR_SET_DUMPABLE, 0);
    auto security = Security::Open(config.options.security, std::move(token), ReadVariable);
    if (!security.ok()) return Fail(security.status(), kExitUsage);
    config.security = *std::move(security);
  }
  config.node_id = MakeNodeId(HostName());
  auto credentials = config.security.ForNode(config.options.run_id, config.node_id.value);
  if (!credentials.ok()) return Fail(credentials.status(), 1);
  config.credentials = *std::move(credentials);
  return std::nullopt;
}

// Threads of the agent, its two guards, and what the workers need to begin with.
absl::Status CheckRoom(const Agent::Config& config) {
  constexpr int kGuards = 2;
  constexpr int kThreadsOfPage = static_cast<int>(kWebConnectionsMax) + 4;  // CivetWeb's, and ours
  const Options& options = config.options;
  const bool page = options.observe.web_port.has_value();
  const bool alone = !UsesNetwork(options) && !config.report.detached() && !page;
  const int threads = alone                                ? kThreadsAlone
                      : options.node_rank.value_or(0) == 0 ? kThreadsOfService
                                                           : kThreadsOfClient;
  return CheckThreads(kGuards + threads + (page ? kThreadsOfPage : 0) + config.local_world_size());
}

// The agent as a child of the keeper and the warden; the warden is this process.
int RunGuarded(Agent::Config& config, std::optional<HeadConnection> head,
               absl::Span<char> command_line) {
  // From here on a signal must not end this process before it has cleaned up.
  config.forwarded_signals = NotIgnored(config.options.stopping.forwarded_signals);
  config.notice_signals = NotIgnored(config.options.stopping.notices.signals);
  const sigset_t passed = Union(config.forwarded_signals, config.notice_signals);
  config.end_signals = WithOtherEndSignals(NotIgnored(config.options.stopping.end_signals), passed);
  const sigset_t signals = Union(config.end_signals, passed);
  config.worker_signal_mask = BlockSignals(signals);
  const absl::StatusOr<std::string> temp_dir = MakeTempDir();
  if (!temp_dir.ok()) return Fail(temp_dir.status(), 1);
  config.temp_dir = *temp_dir;
  const bool asked = config.report.detached() || config.options.observe.web_port.has_value();
  if (asked && !UsesNetwork(config.options))
    config.options.service_socket = absl::StrCat(config.temp_dir, "/service");
  if (config.options.hangs.flight_recorder) config.shared_dir = MakeSharedDir();
  const RunCgroup cgroup = RunCgroup::Make(OwnCgroup(), config.node_id.value);
  config.cgroup = &cgroup;
  config.warden = getpid();
  const Warden warden{.passed_signals = signals,
                      .control_pipe = head.has_value() ? head->control_pipe.fd() : -1,
                      .folders = {config.temp_dir, config.shared_dir},
                      .command_line = command_line,
                      .cgroup = &cgroup,
                      .forget = [&config] { config.security.Forget(); },
                      .on_agent_killed =
                          [&config](const std::string& how) {
                            ReportAgentLoss(config.options, config.node_id, config.credentials,
                                            how);
                          }};
  return RunUnderWarden(warden, [&config, &head](std::vector<int> guard_fds) {
    if (head.has_value()) config.control_pipe = std::move(head->control_pipe);
    config.guard_fds = std::move(guard_fds);
    Agent agent(std::move(config));
    return agent.Run();
  });
}

int RunDoctorNode(Prepared prepared, std::optional<HeadConnection>& head) {
  if (const absl::Status threads = CheckThreads(kThreadsOfService); !threads.ok())
    return Fail(threads, 1);
  DoctorCall call{.options = std::move(prepared.options),
                  .own_folder = OwnProgram().parent_path().string(),
                  .token_variable = std::move(prepared.token)};
  if (head.has_value()) {
    call.control_pipe = std::move(head->control_pipe);
    call.host = head->host;
  }
  return RunDoctor(std::move(call));
}

}  // namespace

std::variant<int, Prepared> Prepare(const std::vector<std::string>& arguments, TokenVariable token,
                                    Purpose purpose) {
  auto parsed = ParseOptions(arguments, ReadVariable, ReadSettingsFile, purpose);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  Prepared prepared{std::get<Options>(*std::move(parsed)), std::move(token)};
  const Options& options = prepared.options;
  SetVariables(options.variables);
  if (!prepared.token.has_value() && !options.token_env_file.empty() && !options.dry_run)
    prepared.token = ReadTokenOfEnvFile(options.token_env_file);
  PrintWarnings(options);
  return prepared;
}

int RunNode(Prepared prepared, std::optional<HeadConnection> head, absl::Span<char> command_line,
            RunReport report) {
  if (head.has_value() && head->serve_at_any_port) prepared.options.master_port = 0;
  if (prepared.options.doctor.has_value()) return RunDoctorNode(std::move(prepared), head);
  Agent::Config config{};
  config.report = std::move(report);
  config.options = std::move(prepared.options);
  const bool named = head.has_value() && !head->host.empty() && head->host != "localhost";
  config.host = named ? head->host : HostName();
  if (head.has_value() && config.options.rank_order != RankOrder::kJoin)
    config.options.asks_for_rank = false;
  auto topology = FindTopology(config.options, config.host, ReadVariable, ReadSettingsFile);
  if (!topology.ok()) return Fail(topology.status(), kExitUsage);
  config.topology = *std::move(topology);
  if (const auto code = FindPlacesAndProgram(config)) return *code;
  if (config.options.dry_run) return ShowDryRun(config, prepared.token.has_value());
  const absl::Status outputs = CheckOutputs(config.options);
  if (!outputs.ok()) return Fail(outputs, kExitUsage);
  if (const auto code = OpenSecurity(config, std::move(prepared.token))) return *code;
  if (const absl::Status room = CheckRoom(config); !room.ok()) return Fail(room, 1);
  return RunGuarded(config, std::move(head), command_line);
}

}  // namespace ddprun
