// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/join_rules.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/version.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

// In a sentence for people; the rest is counted.
constexpr std::size_t kNamesInSentence = 8;
constexpr int kPortMax = 65535;

std::string JoinNames(const std::vector<std::string>& names) {
  if (names.size() <= kNamesInSentence) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kNamesInSentence);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kNamesInSentence,
                      " more");
}

std::string Nodes(int count) { return absl::StrCat(count, count == 1 ? " node" : " nodes"); }

std::string NodesFlag(int min, int max) {
  return min == max ? absl::StrCat("--nnodes ", max) : absl::StrCat("--nnodes ", min, ":", max);
}

std::string Hosts(const RunState& state) {
  std::vector<std::string> hosts;
  for (const auto& entry : state.members) hosts.push_back(entry.second.join.host);
  return JoinNames(hosts);
}

// The node ranks that nobody has. Empty if a member has no rank yet: then nobody can say which ones
// will be missing.
std::vector<std::string> MissingRanks(const RunState& state) {
  std::vector<bool> taken(static_cast<std::size_t>(state.rules->nodes_max), false);
  for (const auto& entry : state.members) {
    if (!entry.second.node_rank) return {};
    taken[static_cast<std::size_t>(*entry.second.node_rank)] = true;
  }
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < taken.size(); ++rank) {
    if (!taken[rank]) missing.push_back(absl::StrCat(rank));
  }
  return missing;
}

absl::Status CheckVersion(const Join& join) {
  if (join.protocol_version == kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", join.host, " speaks protocol ", join.protocol_version, " (ddprun ",
                   join.software_version, "), the service speaks protocol ", kProtocolVersion,
                   " (ddprun ", kSoftwareVersion, "); install the same ddprun on all nodes"));
}

absl::Status CheckRange(const Join& join, const char* what, long long value, long long min,
                        long long max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("node ", join.host, " joined with ", what, " ",
                                                 value, "; it must be ", min, " to ", max));
}

absl::Status CheckFields(const Join& join) {
  if (join.node_id.value.empty())
    return absl::InvalidArgumentError("a node joined without a node id");
  for (const std::string* name : {&join.node_id.value, &join.host, &join.address, &join.run_id}) {
    if (name->size() > kNameBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", join.host.substr(0, kNameBytesMax), " joined with a name of ",
                       name->size(), " bytes; at most ", kNameBytesMax, " are allowed"));
    }
  }
  if (join.address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", join.host, " joined without its address"));
  }
  absl::Status status =
      CheckRange(join, "--nproc-per-node", join.local_world_size, 1, kLocalWorldSizeMax);
  status.Update(CheckRange(join, "--nnodes", join.nodes_max, 1, kNodesMax));
  status.Update(CheckRange(join, "the least number of nodes", join.nodes_min, 1, join.nodes_max));
  status.Update(CheckRange(join, "--max-restarts", join.restarts_max, 0, 1'000'000'000));
  status.Update(CheckRange(join, "the worker port", join.worker_port, 1, kPortMax));
  status.Update(CheckRange(join, "a join timeout in ms of", join.join_timeout.count(), 1,
                           std::chrono::milliseconds(kStoreTimeoutMax).count() * 365));
  if (join.node_rank && (*join.node_rank < 0 || *join.node_rank >= join.nodes_max)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("node ", join.host, " was started with --node-rank ", *join.node_rank,
                     ", which is out of range with ", NodesFlag(join.nodes_min, join.nodes_max),
                     "; node ranks are 0 to ", join.nodes_max - 1)));
  }
  if (status.ok() && join.nodes_min != join.nodes_max) {
    status = absl::UnimplementedError(absl::StrCat(
        "node ", join.host, " was started with ", NodesFlag(join.nodes_min, join.nodes_max),
        "; this service needs a fixed number of nodes: start all nodes with the same --nnodes N"));
  }
  return status;
}

absl::Status CheckRules(const RunRules& rules, const Join& join) {
  if (join.nodes_min != rules.nodes_min || join.nodes_max != rules.nodes_max) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", join.host, " was started with ", NodesFlag(join.nodes_min, join.nodes_max),
        ", the run has ", NodesFlag(rules.nodes_min, rules.nodes_max), " (set by node ",
        rules.set_by, "); start all nodes with the same --nnodes"));
  }
  if (join.restarts_max != rules.restarts_max) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", join.host, " was started with --max-restarts ", join.restarts_max,
                     ", the run has --max-restarts ", rules.restarts_max, " (set by node ",
                     rules.set_by, "); start all nodes with the same --max-restarts"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const RunState& state, const Join& join) {
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    if (member.join.node_id == join.node_id) {
      return absl::AlreadyExistsError(absl::StrCat(
          "a node with the id '", join.node_id.value, "' is in run '", state.run_id,
          "' already (host ", member.join.host, "); each agent needs an id of its own"));
    }
    if (join.node_rank && member.node_rank == join.node_rank) {
      return absl::AlreadyExistsError(absl::StrCat(
          "node rank ", *join.node_rank, " is held by node ", member.join.host,
          " already; start node ", join.host, " with another --node-rank, or without one"));
    }
  }
  if (state.rules && static_cast<int>(state.members.size()) >= state.rules->nodes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("run '", state.run_id, "' has all its ", Nodes(state.rules->nodes_max), " (",
                     Hosts(state), "), node ", join.host,
                     " is one too many; give another run its own --rdzv-id or a larger --nnodes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJoin(const RunState& state, const Join& join) {
  if (absl::Status status = CheckVersion(join); !status.ok()) return status;
  if (absl::Status status = CheckFields(join); !status.ok()) return status;
  if (IsEnding(state)) {
    std::string how = "it has ended";
    if (state.verdict && state.verdict->success) how = "all workers succeeded";
    if (state.cause) how = ToSentence(*state.cause);
    return absl::FailedPreconditionError(absl::StrCat("node ", join.host, " is too late for run '",
                                                      state.run_id, "', which is over: ", how));
  }
  if (state.rules) {
    if (absl::Status status = CheckRules(*state.rules, join); !status.ok()) return status;
  }
  return CheckPlace(state, join);
}

RunRules RulesOf(const Join& first) {
  return RunRules{.nodes_min = first.nodes_min,
                  .nodes_max = first.nodes_max,
                  .restarts_max = first.restarts_max,
                  .join_timeout = first.join_timeout,
                  .set_by = first.host};
}

std::string WaitingWords(const RunState& state) {
  if (state.phase == RunPhase::kBroken) {
    return absl::StrCat("waiting for the other nodes to stop the workers of round ",
                        ToNumber(state.round));
  }
  const int absent = state.rules->nodes_max - static_cast<int>(state.members.size());
  std::string words = absl::StrCat("waiting for ", absent, " of ", Nodes(state.rules->nodes_max));
  const auto missing = MissingRanks(state);
  if (missing.size() == 1) {
    absl::StrAppend(&words, ": node rank ", missing.front(), " has not joined");
  } else if (!missing.empty()) {
    absl::StrAppend(&words, ": node ranks ", JoinNames(missing), " have not joined");
  }
  return words;
}

Failure JoinTimeoutFailure(const RunState& state) {
  const double seconds = std::chrono::duration<double>(state.rules->join_timeout).count();
  const int absent = state.rules->nodes_max - static_cast<int>(state.members.size());
  const auto missing = MissingRanks(state);
  Failure failure;
  failure.kind = FailureKind::kJoinTimeout;
  failure.message =
      absl::StrCat("run '", state.run_id, "': ", absent, " of ", Nodes(state.rules->nodes_max),
                   " did not join within ", seconds, " s");
  if (!missing.empty()) {
    absl::StrAppend(&failure.message, " (node rank", missing.size() == 1 ? " " : "s ",
                    JoinNames(missing), ")");
  }
  absl::StrAppend(&failure.message, "; here: ", Hosts(state),
                  "; check that ddprun runs on the others with the same master address, port and "
                  "run id, and that "
                  "no firewall is between");
  if (state.cause) {
    absl::StrAppend(&failure.message, "; the round before ended because ",
                    ToSentence(*state.cause));
  }
  return failure;
}

}  // namespace ddprun
