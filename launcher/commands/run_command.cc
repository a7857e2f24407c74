// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/hosts/hosts_run.h"

namespace ddprun {

int RunCommand(Invocation invocation, Purpose purpose) {
  auto prepared = Prepare(invocation.arguments, TakeTokenVariable(), purpose);
  if (const int* code = std::get_if<int>(&prepared)) return *code;
  auto& [options, token] = std::get<Prepared>(prepared);
  if (options.hosts.asked()) return RunHosts(options, OwnPath(), std::move(token), ReadVariable);
  return RunNode(std::get<Prepared>(std::move(prepared)), std::nullopt, invocation.command_line);
}

}  // namespace ddprun
