// SPDX-License-Identifier: Apache-2.0
// `ddprun health`: is this machine fit for a round?
#include <cstdio>
#include <utility>

#include "absl/strings/str_join.h"
#include "launcher/base/command.h"
#include "launcher/commands/commands.h"
#include "launcher/doctor/health_facts.h"

namespace ddprun {
namespace {

constexpr int kUnfit = 1;

}  // namespace

int HealthCommand(Invocation invocation) {
  auto parsed = ParseHealthRequest(invocation.arguments);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  const HealthRequest& request = std::get<HealthRequest>(*parsed);
  std::vector<std::string> reasons;
  for (const std::string& check : request.checks) {
    // The last line if this is killed: what hung.
    std::printf("checking %s\n", check.c_str());
    std::fflush(stdout);
    const absl::Status status = JudgeHealth(check, CollectHealthFacts(check, request));
    if (!status.ok()) reasons.emplace_back(status.message());
  }
  if (reasons.empty()) return Show("this node is fit\n");
  std::fprintf(stderr, "%s\n", absl::StrJoin(reasons, "; ").c_str());
  return kUnfit;
}

}  // namespace ddprun
