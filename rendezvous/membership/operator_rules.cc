// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/operator_rules.h"

#include <algorithm>
#include <csignal>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/membership/join_rules.h"

namespace ddprun {
namespace {

std::string NameOf(const Member& member) {
  return absl::StrCat("node ", NodeName(member.join.host, member.node_rank));
}

std::string Workers(const Member& member) {
  const int count = member.join.local_world_size;
  return count == 1 ? "its worker is" : absl::StrCat("its ", count, " workers are");
}

// A number is a rank, also where a host's name is a number.
absl::StatusOr<const Member*> FindNode(const RunState& state, const std::string& name) {
  for (const auto& [rank, id] : state.places) {
    if (absl::StrCat(rank) == name) return &state.members.at(id);
  }
  if (const auto it = state.members.find(NodeId{name}); it != state.members.end()) {
    return &it->second;
  }
  std::vector<const Member*> found;
  for (const auto& entry : state.members) {
    if (entry.second.join.host == name) found.push_back(&entry.second);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) return NoSuchNode(state, name);
  const auto append_id = [](std::string* out, const Member* member) {
    absl::StrAppend(
        out, member->node_rank ? absl::StrCat(*member->node_rank) : member->join.node_id.value);
  };
  return absl::InvalidArgumentError(absl::StrCat("run '", state.run_id, "' has ", found.size(),
                                                 " nodes on host ", name, "; name one of ",
                                                 absl::StrJoin(found, ", ", append_id)));
}

// Null: no worker of that rank runs.
const Member* MemberOfRank(const RunState& state, int rank) {
  if (state.phase != RunPhase::kSealed) return nullptr;
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    if (member.phase == MemberPhase::kRunning && rank >= member.rank_first &&
        rank < member.rank_first + member.join.local_world_size) {
      return &member;
    }
  }
  return nullptr;
}

// The members without the node.
struct Others {
  int count = 0;
  const Member* spare = nullptr;  // the first spare among them
};

Others OthersThan(const RunState& state, const Member& node) {
  Others others;
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    if (&member == &node || member.leaving || !member.drained_by.empty()) continue;
    ++others.count;
    if (member.phase != MemberPhase::kWaiting) continue;
    if (others.spare == nullptr || member.order < others.spare->order) others.spare = &member;
  }
  return others;
}

std::string Leaves(const RunState& state, const Member& node, bool at_next_round) {
  if (at_next_round && state.phase == RunPhase::kSealed) {
    return absl::StrCat(NameOf(node), " leaves when round ", ToNumber(state.round),
                        " ends; afterwards ");
  }
  return absl::StrCat(NameOf(node), " leaves, ", Workers(node), " stopped; ");
}

}  // namespace

absl::Status NoSuchNode(const RunState& state, const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("run '", state.run_id, "' has no node '", name,
                   "'; name its node rank, host or node id (ddpctl status --json lists them)"));
}

absl::StatusOr<std::string> PlanStop(const RunState& state, const StopRequest& request) {
  if (state.phase == RunPhase::kClosed || !state.rules) {
    return absl::FailedPreconditionError(
        absl::StrCat("run '", state.run_id, "' is over already; nothing is left to stop"));
  }
  const Failure cause = StopFailure(request.by, request.now);
  std::string how = absl::StrCat("the workers get ", request.now ? "SIGKILL" : "SIGTERM");
  if (state.phase == RunPhase::kForming) how = "no worker runs yet";
  return absl::StrCat("run '", state.run_id, "' ends on ",
                      Nodes(static_cast<int>(state.members.size())), ": ", how,
                      "; ddprun's exit code is ", ToExitCode(cause), " on each");
}

absl::StatusOr<DrainPlan> PlanDrain(const RunState& state, const DrainRequest& request) {
  if (IsEnding(state) || !state.rules) {
    return absl::FailedPreconditionError(
        absl::StrCat("run '", state.run_id, "' is ending already; its nodes leave by themselves"));
  }
  const absl::StatusOr<const Member*> found = FindNode(state, request.node);
  if (!found.ok()) return found.status();
  const Member& node = **found;
  if (!node.drained_by.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(node), " leaves already, drained by ", node.drained_by));
  }
  if (node.leaving) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(node), " leaves already, once its workers have ended"));
  }
  if (node.join.hosts_service) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(node),
        " hosts the run's rendezvous service and cannot leave without ending the run; ddpctl stop "
        "does that (a run with a ddprun-rendezvous of its own can do without any node)"));
  }
  DrainPlan plan{.node_id = node.join.node_id};
  const Others others = OthersThan(state, node);
  if (node.phase == MemberPhase::kWaiting) {
    plan.sentence = absl::StrCat(NameOf(node), " leaves at once; it has no workers in this round");
    return plan;
  }
  const Join& rules = *state.rules;
  if (others.count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(node), " is the run's last node; ddpctl stop ends the run"));
  }
  plan.sentence = Leaves(state, node, request.at_next_round);
  plan.has_spare = others.count >= rules.nodes_min && others.spare != nullptr;
  if (others.count >= rules.nodes_min) {
    absl::StrAppend(&plan.sentence, others.spare != nullptr
                                        ? absl::StrCat(NameOf(*others.spare), " takes its place")
                                        : absl::StrCat("the run goes on with ", others.count,
                                                       " of at most ", Nodes(rules.nodes_max)));
    return plan;
  }
  const std::string lack =
      absl::StrCat("without ", NameOf(node), " there are ", Nodes(others.count), " left of the ",
                   rules.nodes_min, " that the run needs, and none stands by");
  if (!request.force) {
    return absl::FailedPreconditionError(
        absl::StrCat(lack, "; start another one first, or let the run wait for one with --force"));
  }
  absl::StrAppend(&plan.sentence, lack, "; the others wait for one for up to ",
                  std::chrono::duration<double>(rules.join_timeout).count(), " s");
  return plan;
}

absl::StatusOr<FaultTarget> PlanFault(const RunState& state, const FaultRequest& request) {
  if (IsEnding(state) || !state.rules) {
    return absl::FailedPreconditionError(
        absl::StrCat("run '", state.run_id, "' is ending already; ask one that goes on"));
  }
  const Member* node = nullptr;
  int local_rank = -1;
  if (request.node.empty()) {
    node = MemberOfRank(state, request.rank);
    if (node == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", request.rank, " of run '", state.run_id,
          "' does not run now; wait for its round to begin (ddpctl status shows the ranks)"));
    }
    local_rank = request.rank - node->rank_first;
  } else {
    const absl::StatusOr<const Member*> found = FindNode(state, request.node);
    if (!found.ok()) return found.status();
    node = *found;
  }
  if (!node->link) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(*node), " is away; wait until its connection is back"));
  }
  if (request.kind == FaultKind::kAgent && node->join.hosts_service) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(*node),
        " hosts the run's rendezvous service, and the run would end with its agent; choose another "
        "node, or run a ddprun-rendezvous of its own"));
  }
  return FaultTarget{node->join.node_id, *node->link, local_rank};
}

Failure StopFailure(const std::string& by, bool now) {
  Failure failure;
  failure.kind = FailureKind::kRunStopped;
  failure.signal = now ? SIGKILL : SIGTERM;
  failure.message = absl::StrCat("stopped by ddpctl from ", by, now ? " (--now)" : "");
  return failure;
}

Failure DrainFailure(const Member& member) {
  Failure failure;
  failure.kind = FailureKind::kNodeDrained;
  failure.host = member.join.host;
  failure.node_rank = member.node_rank.value_or(-1);
  failure.message = absl::StrCat("drained by ", member.drained_by);
  return failure;
}

}  // namespace ddprun
