// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/signals.h"
#include "launcher/command_line/help_text.h"
#include "launcher/commands/commands.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/hosts/hosts_plan.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/process/standard_streams.h"
#include "rendezvous/process/thread_check.h"
#include "rendezvous/service_program.h"

namespace {

absl::Span<char> CommandLine(int argc, char** argv) {
  if (argc == 0) return {};
  const char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);
  return {argv[0], static_cast<std::size_t>(end - argv[0])};
}

// ddprun is the other programs as well, under their names: links to one file take a third of the
// space of three (deploy/Dockerfile).
absl::string_view ProgramName(int argc, char** argv) {
  const absl::string_view path = argc == 0 ? "" : argv[0];
  return path.substr(path.rfind('/') + 1);
}

// No default case, so that a row of the table without a case here does not compile.
int RunSubCommand(ddprun::CommandId id, ddprun::Invocation invocation) {
  switch (id) {
    case ddprun::CommandId::kStatus:
      return ddprun::StatusCommand(std::move(invocation.arguments));
    case ddprun::CommandId::kDoctor:
      return ddprun::RunCommand(std::move(invocation), ddprun::Purpose::kDoctor);
    case ddprun::CommandId::kHealth:
      return ddprun::HealthCommand(std::move(invocation));
    case ddprun::CommandId::kSimulate:
      return ddprun::SimulateCommand(std::move(invocation));
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const absl::string_view program = ProgramName(argc, argv);
  if (program == "ddpctl") return ddprun::CtlProgram(argc, argv, nullptr);
  if (program == "ddprun-rendezvous") return ddprun::ServiceProgram(argc, argv);
  if (!ddprun::StandardStreamsAreOpen()) {
    std::fprintf(stderr, "ddprun: cannot open /dev/null: %s\n", ddprun::ErrnoText(errno).c_str());
    return 1;
  }
  ddprun::ExplainThreadFailures("ddprun");
  ddprun::RestoreChildSignal();
  ddprun::Invocation invocation{{argv + 1, argv + argc}, CommandLine(argc, argv)};
  std::vector<std::string>& arguments = invocation.arguments;
  if (arguments == std::vector<std::string>{ddprun::kControlPipeFlag})
    return ddprun::NodeCommand(std::move(invocation));
  // To run a program with the name of a command: `ddprun -- NAME`.
  for (const ddprun::SubCommand& command : ddprun::SubCommands()) {
    if (arguments.empty() || arguments.front() != command.name) continue;
    arguments.erase(arguments.begin());
    return RunSubCommand(command.id, std::move(invocation));
  }
  return ddprun::RunCommand(std::move(invocation), ddprun::Purpose::kRun);
}
