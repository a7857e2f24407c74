// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/node/network.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

// The ranks of its nodes that run.
std::vector<int> RanksOf(const RunStatus& run) {
  std::vector<int> ranks;
  for (const NodeStatus& node : run.nodes) {
    for (int i = 0; i < node.ranks; ++i) ranks.push_back(node.rank_first + i);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

absl::StatusOr<FaultReport> StacksOf(const CtlOptions& options,
                                     const std::shared_ptr<ServiceChannel>& channel,
                                     const std::string& run_id, int rank) {
  return InjectFault(
      channel, run_id, {.by = HostName(), .kind = FaultKind::kStacks, .rank = rank},
      std::max<std::chrono::milliseconds>(options.timeout, kStacksTimeout + kDiskAnswerTimeout));
}

std::vector<std::string> StackLines(const FaultReport& stacks) {
  std::vector<std::string> lines = {absl::StrCat("stacks of ", stacks.words, ":")};
  lines.insert(lines.end(), stacks.stack.begin(), stacks.stack.end());
  if (stacks.stack.empty()) lines.push_back("  they could not be read");
  return lines;
}

int ShowStacks(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  const absl::StatusOr<RunStatus> run = TheRun(options, channel);
  if (!run.ok()) return CtlFailed(run.status());
  const std::vector<int> ranks = options.rank ? std::vector<int>{*options.rank} : RanksOf(*run);
  if (ranks.empty()) {
    return CtlFailed(absl::FailedPreconditionError(
        absl::StrCat("run '", run->run_id, "' has no worker now; wait for its round to begin")));
  }
  if (const std::string where = ToSentence(run->still); !where.empty())
    std::printf("collectives: %s\n", where.c_str());
  int exit_code = 0;
  for (const int rank : ranks) {
    const absl::StatusOr<FaultReport> stacks = StacksOf(options, channel, run->run_id, rank);
    if (!stacks.ok()) {
      exit_code = CtlFailed(absl::Status(
          stacks.status().code(), absl::StrCat("rank ", rank, ": ", stacks.status().message())));
      continue;
    }
    for (const std::string& line : StackLines(*stacks)) std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
  return exit_code;
}

}  // namespace ddprun
