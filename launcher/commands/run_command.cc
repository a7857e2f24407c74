// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/hosts/hosts_run.h"
#include "launcher/runs/detach.h"
#include "rendezvous/base/own_program.h"

namespace ddprun {

int RunCommand(Invocation invocation, Purpose purpose) {
  auto prepared = Prepare(invocation.arguments, TakeTokenVariable(), purpose);
  if (const int* code = std::get_if<int>(&prepared)) return *code;
  auto& [options, token] = std::get<Prepared>(prepared);
  RunReport report;
  if (options.detach && !options.dry_run && purpose == Purpose::kRun) {
    auto detached = Detach(options, invocation.arguments, token);
    if (const int* code = std::get_if<int>(&detached)) return *code;
    report = std::get<RunReport>(std::move(detached));
  }
  if (options.hosts.asked())
    return RunHosts(options, OwnProgram(), std::move(token), ReadVariable, std::move(report));
  return RunNode(std::get<Prepared>(std::move(prepared)), std::nullopt, invocation.command_line,
                 std::move(report));
}

}  // namespace ddprun
