// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/dry_run.h"
#include "launcher/agent/report_node_loss.h"
#include "launcher/agent/warden.h"
#include "launcher/base/command.h"
#include "launcher/base/signals.h"
#include "launcher/base/temp_dir.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/command_line/settings_files.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/status_options.h"
#include "launcher/doctor/doctor_command.h"
#include "launcher/hosts/hosts_command.h"
#include "launcher/node/control_pipe.h"
#include "launcher/node/network.h"
#include "launcher/options/options.h"
#include "launcher/output/output_checks.h"
#include "launcher/placement/devices.h"
#include "launcher/placement/placement.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/program.h"
#include "launcher/processes/worker_environ.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/security/credentials.h"

namespace {

using ddprun::Fail;
using ddprun::Show;

std::filesystem::path OwnPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

std::string OwnFolder() { return OwnPath().parent_path().string(); }

// Started with a closed stdin, stdout or stderr, the next file that is opened would be taken for
// it.
bool OpenStandardStreams() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return true;
  }
  std::fprintf(stderr, "ddprun: cannot open /dev/null: %s\n", ddprun::ErrnoText(errno).c_str());
  return false;
}

// Notes only for those who ask, in torchrun's way.
void SayBeforehand(const ddprun::Options& options) {
  const std::string level = ddprun::ReadVariable("LOGLEVEL").value_or("WARNING");
  for (const std::string& warning : options.warnings)
    std::fprintf(stderr, "ddprun: %s\n", warning.c_str());
  if (level != "INFO" && level != "DEBUG") return;
  for (const std::string& note : options.notes) std::fprintf(stderr, "ddprun: %s\n", note.c_str());
}

// The arguments' memory, which is one piece.
absl::Span<char> CommandLine(int argc, char** argv) {
  if (argc == 0) return {};
  const char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);
  return {argv[0], static_cast<std::size_t>(end - argv[0])};
}

int ShowDryRun(const ddprun::Agent::Config& config, bool has_token_variable) {
  const std::optional<ddprun::Endpoint>& endpoint = config.options.endpoint;
  return Show(ddprun::DryRunText(
      {.options = config.options,
       .program = config.program,
       .places = config.places,
       .host = ddprun::HostName(),
       .endpoint_is_here = endpoint.has_value() && ddprun::IsThisMachine(endpoint->host),
       .secret = ddprun::SecretInWords(config.options, has_token_variable, ddprun::ReadVariable),
       .inherited = ddprun::OwnEnviron()}));
}

// Of a node that the head of a run has started.
struct Started {
  std::optional<ddprun::ControlPipe> control_pipe;  // absent: a person has started this ddprun
  std::string host;
  bool serve_at_any_port = false;
  std::optional<int> doctor_nodes;  // it is for `ddprun doctor`, which should find so many
};

// Among what the head gives its nodes, all of which stands before "--" as --NAME=VALUE.
std::optional<int> TakeDoctorNodes(std::vector<std::string>& arguments) {
  for (auto argument = arguments.begin(); argument != arguments.end() && *argument != "--";
       ++argument) {
    absl::string_view number = *argument;
    int nodes = 0;
    if (!absl::ConsumePrefix(&number, ddprun::kDoctorFlag) || !absl::SimpleAtoi(number, &nodes))
      continue;
    arguments.erase(argument);
    return nodes;
  }
  return std::nullopt;
}

// Everything that can be found wrong is, before the first process is made.
int RunDdprun(const std::vector<std::string>& arguments, absl::Span<char> command_line,
              std::optional<absl::StatusOr<ddprun::Token>> token_variable, Started started) {
  auto parsed = ddprun::ParseOptions(
      arguments, ddprun::ReadVariable, ddprun::ReadSettingsFile,
      started.doctor_nodes.has_value() ? ddprun::Purpose::kDoctor : ddprun::Purpose::kRun);
  if (!parsed.ok()) return Fail(parsed.status(), ddprun::kExitUsage);
  if (const auto* show = std::get_if<ddprun::ShowText>(&*parsed)) {
    return Show(show->text);
  }
  ddprun::Agent::Config config;
  config.options = std::get<ddprun::Options>(*std::move(parsed));
  ddprun::SetVariables(config.options.variables);
  if (!token_variable.has_value() && !config.options.token_env_file.empty() &&
      !config.options.dry_run)
    token_variable = ddprun::ReadTokenOfEnvFile(config.options.token_env_file);
  SayBeforehand(config.options);
  if (config.options.hosts.asked()) {
    return ddprun::RunHosts(config.options, OwnPath(), std::move(token_variable),
                            ddprun::ReadVariable);
  }
  if (started.serve_at_any_port) config.options.master_port = 0;
  if (started.host != "localhost") config.host = started.host;
  if (config.options.doctor.has_value()) {
    config.options.doctor->nodes_wanted = *started.doctor_nodes;
    return ddprun::RunDoctor({.options = std::move(config.options),
                              .own_folder = OwnFolder(),
                              .token_variable = std::move(token_variable),
                              .control_pipe = std::move(started.control_pipe),
                              .host = started.host});
  }
  const auto machine = ddprun::ReadMachine(config.options, ddprun::ReadVariable);
  if (!machine.ok()) return Fail(machine.status(), 1);
  auto places = ddprun::PlaceWorkers(config.options, *machine);
  if (!places.ok()) return Fail(places.status(), 1);
  config.places = *std::move(places);
  config.local_world_size = static_cast<int>(config.places.size());
  absl::StatusOr<ddprun::Program> program =
      ddprun::ResolveProgram(config.options, OwnFolder(), ddprun::ReadVariable);
  if (!program.ok()) {
    return Fail(program.status(), absl::IsNotFound(program.status()) ? ddprun::kExitNotFound
                                                                     : ddprun::kExitNotExecutable);
  }
  config.program = *std::move(program);
  if (config.options.dry_run) return ShowDryRun(config, token_variable.has_value());
  const absl::Status outputs = ddprun::CheckOutputs(config.options);
  if (!outputs.ok()) return Fail(outputs, ddprun::kExitUsage);
  if (ddprun::UsesNetwork(config.options)) {
    // What the certificates are made of must not end up in a core file, nor be read by a debugger
    // of the same user's. Not inherited by the workers.
    prctl(PR_SET_DUMPABLE, 0);
    auto security = ddprun::Security::Open(config.options.security, std::move(token_variable),
                                           ddprun::ReadVariable);
    if (!security.ok()) return Fail(security.status(), ddprun::kExitUsage);
    config.security = *std::move(security);
  }
  token_variable.reset();
  config.node_id = ddprun::MakeNodeId(ddprun::HostName());
  auto credentials = config.security.ForNode(config.options.run_id, config.node_id.value);
  if (!credentials.ok()) return Fail(credentials.status(), 1);
  config.credentials = *std::move(credentials);

  // From here on no signal may end this process before it has cleaned up.
  config.end_signals = ddprun::NotIgnored(config.options.stopping.end_signals);
  config.forwarded_signals = ddprun::NotIgnored(config.options.stopping.forwarded_signals);
  const sigset_t signals = ddprun::Union(config.end_signals, config.forwarded_signals);
  config.worker_signal_mask = ddprun::BlockSignals(signals);
  const absl::StatusOr<std::string> temp_dir = ddprun::MakeTempDir();
  if (!temp_dir.ok()) return Fail(temp_dir.status(), 1);
  config.temp_dir = *temp_dir;
  const ddprun::RunCgroup cgroup =
      ddprun::RunCgroup::Make(ddprun::OwnCgroup(), config.node_id.value);
  config.cgroup = &cgroup;
  const ddprun::Warden warden{
      .passed_signals = signals,
      .control_pipe = started.control_pipe.has_value() ? started.control_pipe->fd() : -1,
      .temp_dir = config.temp_dir,
      .command_line = command_line,
      .cgroup = &cgroup,
      .forget = [&config] { config.security.Forget(); },
      .on_agent_killed =
          [&config](const std::string& how) {
            ddprun::TellServiceOfDeath(config.options, config.node_id, config.credentials, how);
          }};
  return ddprun::RunUnderWarden(warden, [&config, &started](std::vector<int> guard_pidfds) {
    config.control_pipe = std::move(started.control_pipe);
    config.guard_pidfds = std::move(guard_pidfds);
    ddprun::Agent agent(std::move(config));
    return agent.Run();
  });
}

// `ddprun --control-pipe`: stdin says what to do.
int RunForHead(absl::Span<char> command_line) {
  // The head's secret counts, not this machine's.
  ddprun::TakeTokenVariable();
  ddprun::ControlPipe control_pipe = ddprun::ControlPipe::TakeStdin();
  absl::StatusOr<ddprun::Orders> orders = control_pipe.AwaitOrders();
  if (absl::IsCancelled(orders.status())) return 1;
  if (!orders.ok()) return Fail(orders.status(), ddprun::kExitUsage);
  std::optional<absl::StatusOr<ddprun::Token>> token;
  if (!orders->token.empty()) token = ddprun::Token::Parse(orders->token, "the head's secret");
  explicit_bzero(orders->token.data(), orders->token.size());
  const absl::Status status = ddprun::FollowOrders(*orders);
  if (!status.ok()) return Fail(status, 1);
  const std::optional<int> doctor_nodes = TakeDoctorNodes(orders->arguments);
  return RunDdprun(orders->arguments, command_line, std::move(token),
                   {.control_pipe = std::move(control_pipe),
                    .host = orders->host,
                    .serve_at_any_port = orders->serve,
                    .doctor_nodes = doctor_nodes});
}

struct Command {
  const char* name;
  int (*run)(std::vector<std::string> arguments);  // after the name
};

// SubCommands() (help_text.h) says what they are for. A program of such a name is run as
// `ddprun -- NAME`.
constexpr Command kCommands[] = {
    {"status", ddprun::StatusCommand},
};

}  // namespace

int main(int argc, char** argv) {
  if (!OpenStandardStreams()) return 1;
  ddprun::RestoreChildSignal();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{ddprun::kControlPipeFlag})
    return RunForHead(CommandLine(argc, argv));
  for (const Command& command : kCommands) {
    if (arguments.empty() || arguments.front() != command.name) continue;
    arguments.erase(arguments.begin());
    return command.run(arguments);
  }
  // First of all: from here on the environment does not have the secret.
  auto token_variable = ddprun::TakeTokenVariable();
  Started by_person;
  if (!arguments.empty() && arguments.front() == "doctor") {
    arguments.erase(arguments.begin());
    by_person.doctor_nodes = 0;
  }
  return RunDdprun(arguments, CommandLine(argc, argv), std::move(token_variable),
                   std::move(by_person));
}
