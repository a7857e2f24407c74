// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "launcher/base/command.h"
#include "launcher/commands/commands.h"
#include "launcher/hosts/hosts_plan.h"
#include "rendezvous/base/env_file.h"

namespace ddprun {
namespace {

// Removes the head's --doctor=NODES, which stands before "--".
std::optional<int> TakeDoctorNodes(std::vector<std::string>& arguments) {
  for (auto argument = arguments.begin(); argument != arguments.end() && *argument != "--";
       ++argument) {
    absl::string_view number = *argument;
    int nodes = 0;
    if (!absl::ConsumePrefix(&number, kDoctorFlag) || !absl::SimpleAtoi(number, &nodes)) continue;
    arguments.erase(argument);
    return nodes;
  }
  return std::nullopt;
}

}  // namespace

int NodeCommand(Invocation invocation) {
  TakeTokenVariable();  // only the head's secret is used, never this machine's
  ControlPipe control_pipe = ControlPipe::TakeStdin();
  absl::StatusOr<Orders> orders = control_pipe.AwaitOrders();
  if (absl::IsCancelled(orders.status())) return 1;
  if (!orders.ok()) return Fail(orders.status(), kExitUsage);
  TokenVariable token;
  if (!orders->token.empty()) token = Token::Parse(orders->token, "the head's secret");
  Wipe(orders->token);
  const absl::Status status = FollowOrders(*orders);
  if (!status.ok()) return Fail(status, 1);
  const std::optional<int> doctor_nodes = TakeDoctorNodes(orders->arguments);
  auto prepared = Prepare(orders->arguments, std::move(token),
                          doctor_nodes.has_value() ? Purpose::kDoctor : Purpose::kRun);
  if (const int* code = std::get_if<int>(&prepared)) return *code;
  if (doctor_nodes.has_value())
    std::get<Prepared>(prepared).options.doctor->nodes_wanted = *doctor_nodes;
  HeadConnection head{std::move(control_pipe), orders->host, orders->serve};
  return RunNode(std::get<Prepared>(std::move(prepared)), std::move(head), invocation.command_line);
}

}  // namespace ddprun
