// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/restart_rules.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

std::optional<std::string> WhyNoNextRound(const RunState& state) {
  // No node stays.
  if (!state.may_restart || static_cast<int>(state.members.size()) == state.leaving) return "";
  const RestartPolicy& policy = state.rules->restart_policy;
  const Failure& cause = *state.cause;
  auto why = WhyNoRestart(state.restarts, policy, state.rules->restarts_max, cause, state.broke);
  if (why || !WouldLeaveOut(state.restarts, policy, cause, state.broke)) return why;
  bool hosts_service = false;
  int left = 0;
  for (const auto& entry : state.members) {
    const Join& join = entry.second.join;
    if (join.host != cause.host && !entry.second.leaving) ++left;
    hosts_service = hosts_service || (join.host == cause.host && join.hosts_service);
  }
  if (hosts_service) {
    return absl::StrCat(LeftOutWords(policy, cause.host),
                        ", and the run cannot go on without the rendezvous service that it hosts");
  }
  if (left < state.rules->nodes_min) {
    return absl::StrCat(LeftOutWords(policy, cause.host), ", and ", left,
                        left == 1 ? " node is" : " nodes are", " left of the ",
                        state.rules->nodes_min, " that the run needs");
  }
  return std::nullopt;
}

int RestartsForgiven(const RunState& state, TimePoint now) {
  if (!state.rules) return 0;
  return state.restart_count - RestartsUsed(state.restarts, state.rules->restart_policy, now);
}

std::optional<Refused> RefusalOfLeftOut(const RunState& state, const Join& join, TimePoint now) {
  if (!state.rules || state.members.contains(join.node_id)) return std::nullopt;
  // A new node learns that the run is over instead.
  if (!join.resume && IsEnding(state)) return std::nullopt;
  const RestartPolicy& policy = state.rules->restart_policy;
  const HostFailures* host = FindLeftOut(state.restarts, policy, join.host, now);
  if (host == nullptr) return std::nullopt;
  std::string words = absl::StrCat(LeftOutWords(policy, join.host), " of run '", state.run_id,
                                   "', the last with exit code ", host->exit_code);
  if (policy.node_cooldown.count() == 0) {
    absl::StrAppend(&words, "; check that machine, and run ddprun on another one");
  } else {
    const auto rest =
        std::chrono::ceil<std::chrono::seconds>(*host->left_out + policy.node_cooldown - now);
    absl::StrAppend(&words, "; check that machine, or start ddprun there again in ", rest.count(),
                    " s (--node-cooldown)");
  }
  return Refused{absl::FailedPreconditionError(words), join.resume ? host->exit_code : 0};
}

}  // namespace ddprun
