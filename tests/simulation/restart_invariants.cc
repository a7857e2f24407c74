// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/restart_invariants.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

bool In(const std::vector<ExitCodeRange>& codes, int code) {
  for (const ExitCodeRange& range : codes) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

// A worker that has left because a collective failed has not ended, and it may be another's fault.
bool IsWorkers(const Failure& cause) {
  return cause.rank >= 0 && cause.kind != FailureKind::kCollectiveFailed;
}

// What ends a round by somebody's wish is answered with another one that counts for nothing.
bool IsWish(const std::optional<Failure>& cause) { return cause && !IsFailure(*cause); }

bool IsHosts(const Failure& cause) {
  return IsWorkers(cause) || cause.kind == FailureKind::kNodeLost;
}

RoundId Before(RoundId round) { return RoundId{ToNumber(round) - 1}; }

}  // namespace

// A step that no round before it had reached.
bool RestartInvariants::GotFurther(const Run& run, RoundId round) {
  std::int64_t before = -1;
  for (const auto& [number, of] : run.rounds) {
    if (number < round) before = std::max(before, of.step);
  }
  return run.rounds.at(round).step > before;
}

bool RestartInvariants::GivesBack(const Run& run, RoundId round) {
  const RestartPolicy& policy = run.policy;
  const Round& of = run.rounds.at(round);
  const bool ran_long = policy.reset.count() > 0 && of.broke - of.sealed >= policy.reset;
  return ran_long || (policy.no_progress_max > 0 && GotFurther(run, round));
}

// Counts the restarts that followed the rounds up to that one and count at that time: those after
// the last round that ran long enough, itself included, and within the window.
int RestartInvariants::Counted(const Run& run, RoundId upto, TimePoint at) {
  int count = 0;
  for (const auto& [round, of] : run.rounds) {
    if (round > upto) break;
    const RestartPolicy& policy = run.policy;
    if (GivesBack(run, round)) count = 0;
    if (!of.cause || IsWish(of.cause)) continue;
    if (policy.window.count() == 0 || at < of.broke + policy.window) ++count;
  }
  return count;
}

int RestartInvariants::FailuresOf(const Run& run, const std::string& host, RoundId upto,
                                  TimePoint at) {
  const auto forgiven = run.forgiven.find(host);
  int count = 0;
  for (const auto& [round, of] : run.rounds) {
    if (round > upto || !of.cause || !IsHosts(*of.cause) || of.cause->host != host) continue;
    if (forgiven != run.forgiven.end() && of.broke < forgiven->second) continue;
    if (run.policy.window.count() > 0 && at >= of.broke + run.policy.window) continue;
    ++count;
  }
  return count;
}

// Absent: the failure that ended the round must be answered with a restart. `run` does not have it
// yet.
std::optional<std::string> RestartInvariants::WhyNot(const RunState& state, const Run& run,
                                                     RoundId ended, const Failure& cause) {
  const RestartPolicy& policy = run.policy;
  if (IsWish(cause)) return std::nullopt;
  const TimePoint broke = run.rounds.at(ended).broke;
  const int code = ToExitCode(cause);
  if (IsWorkers(cause) && In(policy.never_codes, code)) return "its exit code is not worth one";
  if (IsWorkers(cause) && !policy.only_codes.empty() && !In(policy.only_codes, code)) {
    return "its exit code is none that is worth one";
  }
  // The round itself may have given all back.
  if (Counted(run, ended, broke) >= state.rules->restarts_max) return "none is left";
  if (policy.no_progress_max > 0) {
    int in_a_row = 0;
    for (const auto& [round, of] : run.rounds) {
      if (round > ended) break;
      const bool progress = GivesBack(run, round);
      if (IsWish(of.cause) && !progress) continue;
      in_a_row = progress ? 0 : in_a_row + 1;
    }
    if (in_a_row >= policy.no_progress_max) return "no progress was made";
  }
  const bool goes = policy.node_failures_max > 0 && IsHosts(cause) &&
                    FailuresOf(run, cause.host, ended, broke) + 1 >= policy.node_failures_max;
  if (!goes) return std::nullopt;
  int left = 0;
  for (const auto& entry : state.members) {
    if (entry.second.join.host != cause.host) {
      ++left;
    } else if (entry.second.join.hosts_service) {
      return "who hosts the service would be left out";
    }
  }
  if (left < state.rules->nodes_min) return "too few nodes would be left";
  return std::nullopt;
}

std::string RestartInvariants::Stepped(const Step& step) {
  Run& run = runs_[step.run];
  if (!step.after.rules) return "";
  run.policy = step.after.rules->restart_policy;
  const bool sealed = step.before.phase == RunPhase::kSealed;
  const bool round_ends = step.after.round != step.before.round;
  const bool ends = round_ends || step.after.phase != RunPhase::kSealed;
  if (sealed && ends) run.rounds[step.before.round].broke = step.now;
  std::string wrong = JudgeJoins(step, run);
  if (wrong.empty() && round_ends) wrong = JudgeRestart(step, run, step.before.round);
  if (wrong.empty()) wrong = JudgeEnd(step, run);
  if (step.after.phase == RunPhase::kSealed && (!sealed || round_ends)) {
    run.rounds[step.after.round].sealed = step.now;
  }
  if (step.after.phase == RunPhase::kSealed) {
    std::int64_t& furthest = run.rounds[step.after.round].step;
    furthest = std::max(furthest, step.after.restarts.step);
  }
  if (wrong.empty()) wrong = JudgeStarts(step, run);
  return wrong;
}

std::string RestartInvariants::JudgeRestart(const Step& step, Run& run, RoundId ended) {
  const auto& cause = step.after.cause ? step.after.cause : step.after.last_cause;
  if (!cause) return "restart-policy: a round follows another that had no failure";
  Round& round = run.rounds[ended];
  // With the nodes that are left out in this step, which one that was lost in it is not.
  RunState then = step.after;
  for (const MembershipEffect& effect : step.effects) {
    const auto* send = std::get_if<SendDirective>(&effect);
    const auto* refused = send == nullptr ? nullptr : std::get_if<Refused>(&send->directive);
    if (refused == nullptr || !absl::StrContains(refused->status.message(), "is left out after")) {
      continue;
    }
    const auto link = step.before.links.find(send->link);
    if (link == step.before.links.end()) continue;
    const Member& member = step.before.members.at(link->second);
    if (member.join.host == cause->host) then.members.emplace(link->second, member);
  }
  if (const auto why = WhyNot(then, run, ended, *cause)) {
    return absl::StrCat("restart-policy: round ", ToNumber(ended), " is followed by another, and ",
                        *why);
  }
  round.cause = *cause;
  round.restarted = step.now;
  const bool goes =
      run.policy.node_failures_max > 0 && IsHosts(*cause) &&
      FailuresOf(run, cause->host, ended, round.broke) >= run.policy.node_failures_max;
  if (!goes) return "";
  run.left_out[cause->host] = step.now;
  for (const auto& entry : step.after.members) {
    if (entry.second.join.host == cause->host) {
      return absl::StrCat("left-out: node ", cause->host, " has failed ",
                          run.policy.node_failures_max, " times and is still a member");
    }
  }
  return "";
}

// A failure that is worth a restart is answered with one, as long as anybody is there.
std::string RestartInvariants::JudgeEnd(const Step& step, const Run& run) const {
  const bool broke =
      step.before.phase == RunPhase::kSealed || step.before.phase == RunPhase::kBroken;
  if (!broke || step.after.phase != RunPhase::kClosed || step.after.round != step.before.round ||
      !step.after.verdict || step.after.verdict->success) {
    return "";
  }
  if (!step.after.may_restart || step.after.members.empty()) return "";
  const Failure& cause = *step.after.cause;
  if (!run.rounds.contains(step.after.round)) {
    return absl::StrCat("restart-policy: round ", ToNumber(step.after.round),
                        " ends, and was broken in the step that sealed it");
  }
  if (WhyNot(step.after, run, step.after.round, cause)) return "";
  return absl::StrCat("restart-policy: the run ends with round ", ToNumber(step.after.round),
                      ", and a restart was left for: ", ToSentence(cause));
}

// Nodes of a host that is left out stay out until its cool-down is over, and no other is told so.
std::string RestartInvariants::JudgeJoins(const Step& step, Run& run) const {
  for (const auto& [id, member] : step.after.members) {
    const std::string& host = member.join.host;
    if (step.before.members.contains(id) || !run.left_out.contains(host)) continue;
    if (IsLeftOut(step.run, host, step.now)) {
      return absl::StrCat("left-out: node ", host, " was left out and joins");
    }
    run.left_out.erase(host);
    run.forgiven[host] = step.now;
  }
  return "";
}

// All nodes are told one count, that of all rounds, and the next round comes when it is due.
std::string RestartInvariants::JudgeStarts(const Step& step, const Run& run) const {
  for (const MembershipEffect& effect : step.effects) {
    const auto* send = std::get_if<SendDirective>(&effect);
    const auto* start = send == nullptr ? nullptr : std::get_if<Start>(&send->directive);
    if (start == nullptr) continue;
    int restarts = 0;
    auto last = run.rounds.end();  // that failed
    bool delayed = false;
    for (auto it = run.rounds.begin(); it != run.rounds.end() && it->first < start->round; ++it) {
      delayed = !IsWish(it->second.cause);
      if (!delayed) continue;
      ++restarts;
      last = it;
    }
    if (start->restart_count != restarts) {
      return absl::StrCat("restart-policy: restart ", restarts, " is told as ",
                          start->restart_count);
    }
    if (restarts == 0) continue;
    const int counted = Counted(run, Before(start->round), last->second.broke);
    if (start->restart_count - start->restarts_forgiven != counted) {
      return absl::StrCat("restart-policy: ", counted, " restarts count, and a node is told ",
                          start->restart_count - start->restarts_forgiven);
    }
    Duration delay = run.policy.delay;
    for (int i = 1; i < counted && delay < run.policy.delay_max; ++i) delay *= 2;
    if (run.policy.delay_max.count() > 0) delay = std::min(delay, Duration(run.policy.delay_max));
    const auto round = run.rounds.find(start->round);
    if (delayed && round != run.rounds.end() &&
        round->second.sealed < last->second.restarted + delay) {
      return absl::StrCat("restart-policy: round ", ToNumber(start->round),
                          " starts before its --restart-delay is over");
    }
  }
  return "";
}

bool RestartInvariants::IsLeftOut(std::uint64_t number, const std::string& host,
                                  TimePoint now) const {
  const auto run = runs_.find(number);
  if (run == runs_.end()) return false;
  const auto since = run->second.left_out.find(host);
  if (since == run->second.left_out.end()) return false;
  const auto cooldown = run->second.policy.node_cooldown;
  return cooldown.count() == 0 || now < since->second + cooldown;
}

// What was decided and told to nobody did not happen.
void RestartInvariants::Recovered(std::uint64_t number, const RunState& state) {
  Run& run = runs_[number];
  std::erase_if(run.rounds, [&](const auto& of) {
    return of.first > state.round || (of.first == state.round && state.phase == RunPhase::kForming);
  });
  if (const auto it = run.rounds.find(state.round); it != run.rounds.end()) {
    it->second.cause.reset();
    // Nobody waited for a heartbeat to be written down.
    if (state.phase == RunPhase::kSealed) it->second.step = state.restarts.step;
  }
  std::erase_if(run.left_out, [&](const auto& of) {
    const auto host = state.restarts.hosts.find(of.first);
    return host == state.restarts.hosts.end() || !host->second.left_out;
  });
}

}  // namespace ddprun
