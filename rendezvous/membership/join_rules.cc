// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/join_rules.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/restart_policy.h"

namespace ddprun {
namespace {

// Names in a sentence for people; the rest is counted.
constexpr std::size_t kNamesInSentence = 8;
constexpr int kPortMax = 65535;

std::string JoinNames(const std::vector<std::string>& names) {
  if (names.size() <= kNamesInSentence) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kNamesInSentence);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kNamesInSentence,
                      " more");
}

std::string NodesFlag(int min, int max) {
  return min == max ? absl::StrCat("--nnodes ", max) : absl::StrCat("--nnodes ", min, ":", max);
}

std::string Hosts(const RunState& state) {
  std::vector<std::string> hosts;
  hosts.reserve(state.members.size());
  for (const auto& entry : state.members) hosts.push_back(entry.second.join.host);
  return JoinNames(hosts);
}

// The node ranks that no member has, if all members have one: otherwise the missing ones are not
// known yet.
std::vector<std::string> MissingRanks(const RunState& state) {
  if (state.rules->nodes_min != state.rules->nodes_max ||
      state.places.size() < state.members.size()) {
    return {};
  }
  std::vector<std::string> missing;
  int next = 0;
  for (const auto& entry : state.places) {
    for (; next < entry.first; ++next) missing.push_back(absl::StrCat(next));
    next = entry.first + 1;
  }
  for (; next < state.rules->nodes_max; ++next) missing.push_back(absl::StrCat(next));
  return missing;
}

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrCat(std::chrono::duration<double>(time).count(), " s");
}

std::string FirstAway(const RunState& state) {
  for (const auto& entry : state.members) {
    if (!entry.second.link) return entry.second.join.host;
  }
  return "";
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

absl::Status CheckRoles(const Join& join) {
  long long workers = 0;
  std::set<std::string> names;
  for (const RoleWorkers& role : join.roles) {
    workers += role.workers;
    const bool good = !role.name.empty() && role.name.size() <= kNameBytesMax &&
                      role.workers >= 1 && role.workers <= kLocalWorldSizeMax &&
                      role.worker_port >= (join.ranks_by_role ? 1 : 0) &&
                      role.worker_port <= kPortMax;
    if (good && names.insert(role.name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "node ", join.host, " joined with a role '", role.name.substr(0, kNameBytesMax),
        "' that is named twice or is not valid; give each program its own --role "
        "NAME:COUNT"));
  }
  const bool none = join.roles.empty() && !join.ranks_by_role;
  if (none || workers == join.local_world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("node ", join.host, " joined with ",
                                                 join.local_world_size, " workers, of which ",
                                                 workers, " have a role; both must be equal"));
}

absl::Status CheckFields(const Join& join) {
  if (join.node_id.value.empty())
    return absl::InvalidArgumentError("a node joined without a node id");
  for (const std::string* name : {&join.node_id.value, &join.host, &join.address, &join.run_id,
                                  &join.role, &join.topology, &join.traceparent}) {
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
  if (join.rank_order == RankOrder::kTopology && join.topology.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node ", join.host, " joined with --rank-order topology and without its place"));
  }
  absl::Status status = CheckRoles(join);
  status.Update(CheckRange(join, "--nproc-per-node", join.local_world_size, 1, kLocalWorldSizeMax));
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
  status.Update(CheckRange(join, "a join window in ms of", join.last_call.count(), 0,
                           std::chrono::milliseconds(kLastCallMax).count()));
  if (join.lease.count() != 0) {
    status.Update(CheckRange(join, "a lease in ms of", join.lease.count(), kLeaseMin.count(),
                             std::chrono::milliseconds(kLeaseMax).count()));
  }
  status.Update(CheckRange(join, "a time to stop in ms of", join.stop_timeout.count(), 0,
                           std::chrono::milliseconds(kStopTimeoutMax).count()));
  if (const absl::Status policy = CheckPolicy(join.restart_policy, join.restarts_max);
      !policy.ok()) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("node ", join.host, " joined with ", policy.message())));
  }
  return status;
}

absl::Status CheckRules(const Join& rules, const Join& join) {
  if (join.nodes_min != rules.nodes_min || join.nodes_max != rules.nodes_max) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", join.host, " was started with ", NodesFlag(join.nodes_min, join.nodes_max),
        ", the run has ", NodesFlag(rules.nodes_min, rules.nodes_max), " (set by node ", rules.host,
        "); start all nodes with the same --nnodes"));
  }
  if (join.restarts_max != rules.restarts_max) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", join.host, " was started with --max-restarts ", join.restarts_max,
                     ", the run has --max-restarts ", rules.restarts_max, " (set by node ",
                     rules.host, "); start all nodes with the same --max-restarts"));
  }
  if (join.ranks_by_role != rules.ranks_by_role) {
    const auto flag = [](const Join& of) {
      return of.ranks_by_role ? "--ranks-by role" : "--ranks-by run";
    };
    return absl::FailedPreconditionError(
        absl::StrCat("node ", join.host, " was started with ", flag(join), ", the run has ",
                     flag(rules), " (set by node ", rules.host,
                     "); start all nodes with the same --ranks-by (role is the default of a node "
                     "with several programs)"));
  }
  if (join.rank_order != rules.rank_order) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", join.host, " was started with --rank-order ", RankOrderName(join.rank_order),
        ", the run has --rank-order ", RankOrderName(rules.rank_order), " (set by node ",
        rules.host, "); start all nodes with the same --rank-order"));
  }
  if (const auto differs = FindDifference(join.restart_policy, rules.restart_policy)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", join.host, " was started with ", differs->a, ", the run has ", differs->b,
        " (set by node ", rules.host, "); start all nodes with the same ", differs->flag));
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const RunState& state, const Join& join) {
  if (const auto it = state.members.find(join.node_id); it != state.members.end()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "a node with the id '", join.node_id.value, "' is in run '", state.run_id,
        "' already (host ", it->second.join.host, "); each agent needs an id of its own"));
  }
  for (const auto* holders : {&state.asked, &state.places}) {
    if (!join.node_rank) break;
    const auto holder = holders->find(*join.node_rank);
    if (holder != holders->end() && state.members.at(holder->second).link) {
      return absl::AlreadyExistsError(
          absl::StrCat("node rank ", *join.node_rank, " is held by node ",
                       state.members.at(holder->second).join.host, " already; start node ",
                       join.host, " with another --node-rank, or without one"));
    }
  }
  if (state.members.size() >= kMembersMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "run '", state.run_id, "' has ", state.members.size(), " nodes and spares, node ",
        join.host, " is one too many; give another run its own --rdzv-id"));
  }
  return absl::OkStatus();
}

std::string PlainWaitingWords(const RunState& state) {
  const Join& rules = *state.rules;
  const auto here = static_cast<int>(state.members.size());
  if (state.phase == RunPhase::kBroken) {
    return absl::StrCat("waiting for the other nodes to stop the workers of round ",
                        ToNumber(state.round));
  }
  if (state.phase == RunPhase::kSealed) {
    const int seats = state.start->node_count;
    return seats == rules.nodes_max
               ? absl::StrCat("standing by as a spare: the run has all its ", Nodes(seats),
                              ", and this one takes the place of the first that is lost")
               : absl::StrCat("standing by: round ", ToNumber(state.round), " runs with ",
                              Nodes(seats), ", and this one has its place in the next");
  }
  if (state.restart_due) {
    return absl::StrCat("restart ", state.restart_count, " begins after its --restart-delay");
  }
  if (here >= rules.nodes_min && state.links.size() < state.members.size()) {
    return absl::StrCat("waiting for node ", FirstAway(state),
                        ", whose connection ended, to come back");
  }
  if (here >= rules.nodes_min) {
    return absl::StrCat(Nodes(here), here == 1 ? " is" : " are",
                        " here, enough to start; waiting for up to ", rules.nodes_max - here,
                        " more until the join window ends");
  }
  if (rules.nodes_min != rules.nodes_max) {
    return absl::StrCat("waiting for ", rules.nodes_min - here, " of at least ",
                        Nodes(rules.nodes_min));
  }
  std::string words =
      absl::StrCat("waiting for ", rules.nodes_max - here, " of ", Nodes(rules.nodes_max));
  const auto missing = MissingRanks(state);
  if (missing.size() == 1) {
    absl::StrAppend(&words, ": node rank ", missing.front(), " has not joined");
  } else if (!missing.empty()) {
    absl::StrAppend(&words, ": node ranks ", JoinNames(missing), " have not joined");
  }
  return words;
}

// The address alone does not tell: that of the service's own node may be a name or the loopback.
bool IsSameHost(const KnownHost& known, const Join& join) {
  return known.address == join.address ||
         (!known.addresses.empty() && known.addresses == join.addresses);
}

}  // namespace

std::string Nodes(int count) { return absl::StrCat(count, count == 1 ? " node" : " nodes"); }

std::string NodeName(const std::string& host, std::optional<int> node_rank) {
  return node_rank ? absl::StrCat(host, " (node rank ", *node_rank, ")") : host;
}

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

absl::Status CheckResume(const RunState& state, const Join& join) {
  if (absl::Status status = CheckVersion(join); !status.ok()) return status;
  if (state.members.contains(join.node_id)) return absl::OkStatus();
  if (!state.rules) {
    return absl::AbortedError(absl::StrCat(
        "node ", join.host, " came back to run '", state.run_id,
        "', which the rendezvous service does not know: it was restarted without a journal, "
        "or gave the run up while no node was connected; start the run again, with "
        "ddprun-rendezvous --journal FOLDER to outlive the service"));
  }
  return absl::AbortedError(
      absl::StrCat("node ", join.host, " came back to run '", state.run_id,
                   "' too late: its place was given up after ", Seconds(state.rules->lease),
                   " without a message (--lease",
                   state.rules->lease > kUnseatedLeaseMax
                       ? absl::StrCat("; ", Seconds(kUnseatedLeaseMax), " before its first round")
                       : "",
                   "); start it again to join as a new node"));
}

std::chrono::milliseconds LeaseOf(const RunState& state, const Member& member) {
  const auto lease = state.rules->lease;
  return member.link || member.seated
             ? lease
             : std::min<std::chrono::milliseconds>(lease, kUnseatedLeaseMax);
}

TimePoint FormingUntil(const RunState& state) {
  return state.restart_due.value_or(state.last_call_due.value_or(state.deadline));
}

std::string WaitingWords(const RunState& state) {
  std::string words = PlainWaitingWords(state);
  // While the next round forms, the end of the last one is of interest.
  if (state.phase == RunPhase::kForming && state.cause) {
    absl::StrAppend(&words, " (round ", ToNumber(state.round) - 1,
                    " ended: ", ToSentence(*state.cause), state.left_out.empty() ? "" : "; ",
                    state.left_out, ")");
  }
  return words;
}

std::string LostWords(const RunState& state, const Member& member) {
  return member.link ? absl::StrCat("it sent nothing for ", Seconds(state.rules->lease),
                                    " (--lease); check that machine and its network")
                     : absl::StrCat(
                           "its connection to the rendezvous service ended and it did not "
                           "come back within ",
                           Seconds(LeaseOf(state, member)), member.seated ? " (--lease)" : "",
                           "; check that machine and its network");
}

std::string SuspendedWords(const RunState& state, const Member& member, bool is_hosted) {
  const std::string time = absl::StrCat(
      "did not run for at least ",
      std::chrono::floor<std::chrono::seconds>(state.suspension->length).count(), " s");
  constexpr absl::string_view kNext =
      " was suspended, or its ddprun was stopped (SIGSTOP, a debugger)";
  return is_hosted
             ? absl::StrCat("it ", time, ", and with it the rendezvous service, to which node ",
                            NodeName(member.join.host, member.node_rank),
                            " has not come back; check whether that machine", kNext)
             : absl::StrCat("it has not come back to the rendezvous service, which ", time,
                            "; check whether the service's machine", kNext);
}

absl::Status FencedForSilence(const RunState& state, const Member& member) {
  return absl::AbortedError(absl::StrCat("node ", member.join.host, " sent nothing for ",
                                         Seconds(state.rules->lease),
                                         " (--lease) and was removed from run '", state.run_id,
                                         "'; start it again to join as a new node"));
}

absl::Status FencedAsDead(const RunState& state, const Member& member, const std::string& reason) {
  return absl::AbortedError(absl::StrCat("node ", member.join.host, " was removed from run '",
                                         state.run_id, "': ", reason,
                                         "; start it again to join as a new node"));
}

absl::Status StoppedTooLate(const RunState& state, const Member& member) {
  return absl::DeadlineExceededError(absl::StrCat(
      "node ", member.join.host, " did not stop its workers within ",
      Seconds(std::chrono::ceil<std::chrono::milliseconds>(state.deadline - state.broke)),
      " after the failure and was removed from run '", state.run_id, "'"));
}

Failure JoinTimeoutFailure(const RunState& state) {
  const int wanted = state.rules->nodes_min;
  const int absent = std::max(0, wanted - static_cast<int>(state.links.size()));
  const auto missing = MissingRanks(state);
  Failure failure;
  failure.kind = FailureKind::kJoinTimeout;
  failure.message = absl::StrCat("run '", state.run_id, "': ", absent, " of ", Nodes(wanted),
                                 " did not join within ", Seconds(state.rules->join_timeout));
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

std::string HostNameInRun(const RunState& state, const Join& join) {
  const auto member = state.members.find(join.node_id);
  if (member != state.members.end()) return member->second.join.host;
  const auto known = state.hosts.find(join.host);
  if (known == state.hosts.end() || IsSameHost(known->second, join)) return join.host;
  return absl::StrCat(join.host, " at ", join.address);
}

void RememberHost(RunState& state, const Join& join) {
  state.hosts.insert_or_assign(join.host, KnownHost{join.address, join.addresses});
  // As many hosts without a node are remembered as there may be failed ones, and seldom counted.
  if (state.hosts.size() <= state.members.size() + 2 * kFailedHostsMax) return;
  std::set<std::string> needed;
  for (const auto& entry : state.members) needed.insert(entry.second.join.host);
  std::erase_if(state.hosts, [&](const auto& host) {
    return host.first != join.host && !needed.contains(host.first) &&
           !state.restarts.hosts.contains(host.first);
  });
}

}  // namespace ddprun
