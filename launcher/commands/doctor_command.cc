// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/commands/node.h"
#include "launcher/hosts/hosts_command.h"

namespace ddprun {

int DoctorCommand(Invocation invocation) {
  auto prepared = Prepare(invocation.arguments, TakeTokenVariable(), Purpose::kDoctor);
  if (const int* code = std::get_if<int>(&prepared)) return *code;
  auto& [options, token] = std::get<Prepared>(prepared);
  if (options.hosts.asked()) return RunHosts(options, OwnPath(), std::move(token), ReadVariable);
  return RunDoctorNode(std::get<Prepared>(std::move(prepared)), std::nullopt, 0);
}

}  // namespace ddprun
