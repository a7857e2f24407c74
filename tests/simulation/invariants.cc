// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/invariants.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "tests/testing/membership_invariants.h"

namespace ddprun {
namespace {

// A timer may come late: that of a service that is stopped comes when it goes on.
constexpr std::chrono::seconds kLateness{31};

std::string Name(RoundId round) { return absl::StrCat("round ", ToNumber(round)); }

const Member* Find(const RunState& state, const NodeId& id) {
  const auto it = state.members.find(id);
  return it == state.members.end() ? nullptr : &it->second;
}

const Member* FindByLink(const RunState& state, LinkId link) {
  const auto it = state.links.find(link);
  return it == state.links.end() ? nullptr : Find(state, it->second);
}

bool InRound(const Member& member) { return member.phase != MemberPhase::kWaiting; }

// The report of a notice that this step takes; null: it takes none.
const PreemptionReport* NoticeIn(const SimStep& step) {
  const auto* reported = std::get_if<NodeReported>(&step.event);
  return reported == nullptr ? nullptr : std::get_if<PreemptionReport>(&reported->report);
}

// Its machine will be taken away, and it can leave before.
bool GoesByNotice(const SimStep& step, const Member& member) {
  if (member.join.hosts_service) return false;
  const PreemptionReport* report = NoticeIn(step);
  const bool is_own = report != nullptr && member.link == std::get<NodeReported>(step.event).link;
  if (is_own && report->saved == 0) return !report->withdrawn;
  return member.notice && member.notice->until > step.now;
}

bool IsDrainedIn(const SimStep& step, const NodeId& id) {
  return std::any_of(step.effects.begin(), step.effects.end(), [&](const MembershipEffect& one) {
    const auto* note = std::get_if<RunNotice>(&one);
    return note != nullptr && note->kind == NoticeKind::kNodeDrained && note->node_id == id;
  });
}

constexpr int kExitCodeMax = 255;

// No process can end with another code than these.
int ExitCodeOf(const Failure& reported) {
  const bool exited = reported.kind == FailureKind::kWorkerExited;
  return exited && (reported.exit_code < 1 || reported.exit_code > kExitCodeMax)
             ? 1
             : reported.exit_code;
}

}  // namespace

std::string Name(RunPhase phase) {
  switch (phase) {
    case RunPhase::kForming:
      return "forming";
    case RunPhase::kSealed:
      return "sealed";
    case RunPhase::kBroken:
      return "broken";
    case RunPhase::kClosed:
      return "closed";
  }
  return "";
}

void Invariants::Fail(absl::string_view invariant, absl::string_view sentence) {
  if (ok()) failure_ = absl::StrCat(invariant, ": ", sentence);
}

void Invariants::Stepped(const SimStep& step) {
  Observe(step);
  if (const absl::Status status = CheckInvariants(step.before, step.after); !status.ok()) {
    Fail("membership-invariants", status.message());
  }
  RanksAreUniqueAndWithoutGap(step);
  EveryNodeRunsWhatTheRoundSays(step);
  Judge(restarts_.Stepped({step.run, step.before, step.effects, step.after, step.now}));
  NobodyWaitsForEver(step);
  WhoWaitsIsToldWhy(step);
  JoiningDisturbsNobody(step);
  OnlyKeptRoundsGrow(step);
  NobodyIsInHisOwnWay(step);
  LeavingIsNotClosing(step);
  SpareTakesThePlace(step);
  OldRoundsMeanNothing(step);
  FirstCauseIsTheCause(step);
  VictimsAreNoCause(step);
  LosesOnlyWhoIsLost(step);
  NoticesDrainWhoGoes(step);
  TheHostLeavesLast(step);
  TheVerdictIsKeptUntilItIsTaken(step);
  MembersSpeakForThemselves(step);
  Note(step);
  OneVerdictForAll(step);
}

// ---- Each of them

// The workers of two rounds of a run never live at once, but for those of a node that is lost and
// has not heard of it.
void Invariants::OneLiveRound(const NodeId& node, const Start& start) {
  const Node& self = nodes_[node];
  if (self.lost_in) return;
  for (const auto& [id, other] : nodes_) {
    if (id == node || other.run != self.run || other.lost_in || !other.live) continue;
    if (*other.live != start.round) {
      Fail("one-live-round",
           absl::StrCat("node ", node.value, " starts the workers of ", Name(start.round),
                        " while those of ", Name(*other.live), " live on node ", id.value));
    }
  }
}

// When a round is sealed, the nodes' ranks are 0 to n-1 and their workers' ranks follow one
// another.
void Invariants::RanksAreUniqueAndWithoutGap(const SimStep& step) {
  if (step.after.phase != RunPhase::kSealed) return;
  if (step.before.phase == RunPhase::kSealed && step.before.round == step.after.round) return;
  std::map<int, const Member*> seats;
  int in_round = 0;
  for (const auto& [id, member] : step.after.members) {
    if (!InRound(member)) continue;
    ++in_round;
    if (!member.link)
      Fail("ranks", absl::StrCat(Name(step.after.round), " is sealed without node ", id.value,
                                 ", which is away"));
    if (!member.node_rank || !seats.emplace(*member.node_rank, &member).second) {
      Fail("ranks", absl::StrCat("node rank of ", id.value, " is absent or given twice in ",
                                 Name(step.after.round)));
      return;
    }
  }
  int node_rank = 0;
  int rank = 0;
  for (const auto& [seat, member] : seats) {
    if (seat != node_rank || member->rank_first != rank) {
      Fail("ranks", absl::StrCat("node rank ", node_rank, " or rank ", rank, " of ",
                                 Name(step.after.round), " is nobody's"));
    }
    ++node_rank;
    rank += member->join.local_world_size;
  }
  const Start& start = *step.after.start;
  if (start.world_size != rank || start.node_count != in_round) {
    Fail("ranks", absl::StrCat("the world size of ", Name(step.after.round), " is said to be ",
                               start.world_size, " on ", start.node_count, " nodes, and is ", rank,
                               " on ", in_round));
  }
  const Member* first = seats.empty() ? nullptr : seats.begin()->second;
  if (first != nullptr &&
      (start.master_addr != first->join.address || start.master_port != first->join.worker_port)) {
    Fail("ranks",
         absl::StrCat("the master of ", Name(step.after.round), " is not where rank 0 is"));
  }
}

// All nodes of a round are told one world, once; whoever is told again is told the same.
void Invariants::EveryNodeRunsWhatTheRoundSays(const SimStep& step) {
  for (const MembershipEffect& effect : step.effects) {
    const auto* send = std::get_if<SendDirective>(&effect);
    if (send == nullptr) continue;
    const auto* start = std::get_if<Start>(&send->directive);
    if (start == nullptr) continue;
    // In one step a round may be sealed and broken, and even this node be lost.
    const Member* member = FindByLink(step.after, send->link);
    if (member == nullptr) member = FindByLink(step.before, send->link);
    if (member == nullptr || start->round < step.before.round || start->round > step.after.round) {
      Fail("one-live-round", absl::StrCat(Name(start->round), " is started while the run is in ",
                                          Name(step.after.round)));
      return;
    }
    auto& starts = runs_[step.run].starts[start->round];
    const auto [it, is_new] = starts.emplace(member->join.node_id, *start);
    if (!is_new && !(it->second == *start)) {
      Fail("ranks", absl::StrCat("node ", member->join.node_id.value, " is told another place in ",
                                 Name(start->round), " than before"));
    }
    const Start& any = starts.begin()->second;
    if (any.world_size != start->world_size || any.node_count != start->node_count ||
        any.master_addr != start->master_addr || any.master_port != start->master_port ||
        any.restart_count != start->restart_count ||
        any.restarts_forgiven != start->restarts_forgiven || any.left_out != start->left_out) {
      Fail("ranks", absl::StrCat("nodes of ", Name(start->round), " are told different worlds"));
    }
  }
}

void Invariants::WorkersRunWhatTheRoundSays(const NodeId& node, const Start& start) {
  const auto& starts = runs_[nodes_[node].run].starts;
  const auto round = starts.find(start.round);
  bool as_said = false;
  if (round != starts.end()) {
    const auto said = round->second.find(node);
    as_said = said != round->second.end() && said->second == start;
  }
  if (!as_said) {
    Fail("ranks", absl::StrCat("node ", node.value, " starts workers of ", Name(start.round),
                               " otherwise than the service decided"));
  }
}

// A round that forms or stops has ended by its deadline, and somebody is to look at the time.
void Invariants::NobodyWaitsForEver(const SimStep& step) {
  Run& run = runs_[step.run];
  const bool same = run.phase == step.after.phase && step.before.round == step.after.round;
  if (!same || run.phase_since == TimePoint{}) run.phase_since = step.now;
  run.phase = step.after.phase;
  if (!step.after.rules || step.after.members.empty()) return;
  const bool waits = run.phase == RunPhase::kForming || run.phase == RunPhase::kBroken;
  const RestartPolicy& policy = step.after.rules->restart_policy;
  const Duration most =
      run.phase == RunPhase::kBroken
          ? Duration(kStopTimeout)
          : Duration(step.after.rules->join_timeout + std::max(policy.delay, policy.delay_max));
  if (waits && step.now - run.phase_since > most + kLateness) {
    Fail("nobody-waits-for-ever",
         absl::StrCat(Name(step.after.round), " is ", Name(run.phase), " for longer than ",
                      std::chrono::duration<double>(most).count(), " s"));
  }
  const auto next = NextDeadline(step.after);
  if (waits && (!next || *next > step.now + most + kLateness)) {
    Fail("nobody-waits-for-ever",
         absl::StrCat("nodes wait in ", Name(step.after.round), ", and nobody looks at the time"));
  }
  for (const auto& [id, member] : step.after.members) {
    if (step.after.rules->lease.count() > 0 &&
        member.last_seen + step.after.rules->lease + kLateness < step.now) {
      Fail("nobody-waits-for-ever",
           absl::StrCat("node ", id.value, " is still a member long after its lease was over"));
    }
  }
}

void Invariants::WhoWaitsIsToldWhy(const SimStep& step) {
  for (const MembershipEffect& effect : step.effects) {
    const auto* send = std::get_if<SendDirective>(&effect);
    if (send == nullptr) continue;
    if (const auto* waiting = std::get_if<Waiting>(&send->directive)) {
      if (waiting->reason.empty() || absl::StrContains(waiting->reason, "waiting for 0 ")) {
        Fail("who-waits-is-told-why",
             absl::StrCat("a node is told to wait: '", waiting->reason, "'"));
      }
    } else if (const auto* refused = std::get_if<Refused>(&send->directive)) {
      if (refused->status.ok() || refused->status.message().empty()) {
        Fail("who-waits-is-told-why", "a node is refused and not told why");
      }
    }
  }
}

// Who was taken out of the run starts no workers of a later round.
void Invariants::FencedNodesStayOut(const NodeId& node, const Start& start) {
  const Node& self = nodes_[node];
  if (self.lost_in && start.round > *self.lost_in) {
    Fail("fenced-nodes-stay-out",
         absl::StrCat("node ", node.value, " was lost in ", Name(*self.lost_in),
                      " and starts workers of ", Name(start.round)));
  }
}

// A newcomer changes nothing for a round that runs, unless it replaces a node that is away by the
// node rank both were given. A node that comes back changes nothing either.
void Invariants::JoiningDisturbsNobody(const SimStep& step) {
  const auto* joined = std::get_if<NodeJoined>(&step.event);
  if (joined == nullptr || step.before.phase != RunPhase::kSealed) return;
  bool replaces = false;
  for (const auto* holders : {&step.before.places, &step.before.asked}) {
    if (!joined->join.node_rank || joined->join.resume) break;
    const auto holder = holders->find(*joined->join.node_rank);
    if (holder != holders->end() && !step.before.members.at(holder->second).link) replaces = true;
  }
  if (replaces) return;
  // --on-join
  if (step.after.cause && step.after.cause->kind == FailureKind::kNodeJoined) return;
  for (const auto& [id, member] : step.before.members) {
    const Member* still = Find(step.after, id);
    if (step.after.phase != RunPhase::kSealed || still == nullptr || still->phase != member.phase ||
        still->rank_first != member.rank_first) {
      Fail("joining-disturbs-nobody",
           absl::StrCat("node ", joined->join.node_id.value, " joins, and node ", id.value,
                        " loses its place in ", Name(step.before.round)));
      return;
    }
  }
}

// A round is broken for a newcomer only if there is a place for it, and either all its workers can
// be kept and the newcomer is ready, or that was asked for.
void Invariants::OnlyKeptRoundsGrow(const SimStep& step) {
  if (step.before.phase != RunPhase::kSealed || step.after.phase == RunPhase::kSealed) return;
  if (!step.after.cause || step.after.cause->kind != FailureKind::kNodeJoined) return;
  const OnJoin on_join = step.before.rules->restart_policy.on_join;
  if (step.before.start->node_count >= step.before.rules->nodes_max)
    Fail("only-kept-rounds-grow", "a round without a free place is broken for a newcomer");
  if (on_join == OnJoin::kRestart) return;
  if (on_join == OnJoin::kStandby)
    Fail("only-kept-rounds-grow", "a round is broken for a newcomer that is to stand by");
  const auto* reported = std::get_if<NodeReported>(&step.event);
  const auto* keeping = reported == nullptr ? nullptr : std::get_if<CanBeKept>(&reported->report);
  const Member* reporter = reported == nullptr ? nullptr : FindByLink(step.before, reported->link);
  bool ready = false;
  for (const auto& [id, member] : step.before.members) {
    const bool keeps =
        keeping != nullptr && &member == reporter ? keeping->all : member.can_be_kept;
    if (InRound(member) && !keeps)
      Fail("only-kept-rounds-grow",
           absl::StrCat("node ", id.value,
                        "'s workers cannot be kept, and are stopped for a newcomer"));
    ready = ready || (!InRound(member) && keeps);
  }
  if (!ready) Fail("only-kept-rounds-grow", "a round is broken for a newcomer that is not ready");
}

void Invariants::KeptWorkersWereStopped(const NodeId& node, const Start& start) {
  Fail("survivors-are-kept",
       absl::StrCat("node ", node.value, " has stopped workers that could have been kept, and ",
                    Name(start.round), " follows"));
}

// A node that did not hear that it was accepted, and asks again, is in the run.
void Invariants::NobodyIsInHisOwnWay(const SimStep& step) {
  const auto* joined = std::get_if<NodeJoined>(&step.event);
  const Member* self = joined == nullptr ? nullptr : Find(step.before, joined->join.node_id);
  if (self == nullptr || step.before.phase == RunPhase::kClosed) return;
  if (!step.after.links.contains(joined->link)) {
    Fail("nobody-is-in-his-own-way",
         absl::StrCat("node ", self->join.node_id.value, " is refused for being in the run"));
  }
}

// A node that leaves ends the run only if it hosts the service, if it was the last, or if the round
// breaks for it: then restart-policy judges.
void Invariants::LeavingIsNotClosing(const SimStep& step) {
  const auto* reported = std::get_if<NodeReported>(&step.event);
  const auto* leave = reported == nullptr ? nullptr : std::get_if<Leave>(&reported->report);
  if (leave == nullptr || !step.before.rules || step.before.phase == RunPhase::kClosed) return;
  const Member* leaver = FindByLink(step.before, reported->link);
  if (leave->close_run && leaver != nullptr && leaver->join.hosts_service) return;
  if (leaver == nullptr || step.after.phase != RunPhase::kClosed || step.before.members.size() < 2)
    return;
  const bool breaks = step.before.phase == RunPhase::kBroken ||
                      (step.before.phase == RunPhase::kSealed && InRound(*leaver));
  if (breaks) return;
  if (!step.before.may_restart) return;
  Fail("leaving-is-not-closing",
       absl::StrCat("node ", leaver->join.node_id.value, " leaves, and the run is closed for ",
                    step.before.members.size() - 1, " others"));
}

// A round with all its places has nobody in it that came after one who stands by, unless that one
// had a place before.
void Invariants::SpareTakesThePlace(const SimStep& step) {
  if (step.after.phase != RunPhase::kSealed) return;
  if (step.before.phase == RunPhase::kSealed && step.before.round == step.after.round) return;
  int seats = 0;
  for (const auto& [id, member] : step.after.members) {
    seats += InRound(member);
    if (InRound(member)) continue;
    const Member* then = Find(step.before, id);
    if (then != nullptr && then->seated) {
      Fail("spare-takes-the-place", absl::StrCat("node ", id.value, " had a place and has none in ",
                                                 Name(step.after.round)));
    }
    for (const auto& [other_id, other] : step.after.members) {
      const Member* other_then = Find(step.before, other_id);
      // One that comes in this step completes the round, or has replaced one.
      const bool was_seated = other_then == nullptr || other_then->seated;
      if (InRound(other) && !was_seated && other.order > member.order) {
        Fail("spare-takes-the-place", absl::StrCat("node ", other_id.value, " came after node ",
                                                   id.value, " and has its place"));
      }
    }
  }
  if (seats < static_cast<int>(step.after.members.size()) && seats < step.after.rules->nodes_max) {
    Fail("spare-takes-the-place",
         absl::StrCat("a node stands by while ", Name(step.after.round), " has a place free"));
  }
}

// What a node says of another round than the current changes nothing.
void Invariants::OldRoundsMeanNothing(const SimStep& step) {
  const auto* reported = std::get_if<NodeReported>(&step.event);
  if (reported == nullptr ||
      RoundOf(reported->report).value_or(step.before.round) == step.before.round)
    return;
  const Member* was = FindByLink(step.before, reported->link);
  if (was == nullptr) return;
  // A node in no round is ready for the next one.
  if (RoundOf(reported->report) == kNoRound && !InRound(*was)) return;
  const Member* is = Find(step.after, was->join.node_id);
  if (step.after.phase != step.before.phase || step.after.round != step.before.round ||
      is == nullptr || is->phase != was->phase || step.after.cause != step.before.cause) {
    Fail("old-rounds-mean-nothing",
         absl::StrCat("a report of another round than ", Name(step.before.round), " by node ",
                      was->join.node_id.value, " changes it"));
  }
}

// A round that breaks has one of three causes: a worker's failure as it was reported, a node that
// is gone by this step, or a node that left.
void Invariants::FirstCauseIsTheCause(const SimStep& step) {
  const bool breaks = step.before.phase == RunPhase::kSealed &&
                      step.after.phase != RunPhase::kSealed &&
                      !(step.after.verdict && step.after.verdict->success);
  if (!breaks) return;
  if (!step.after.cause) {
    Fail("first-cause", absl::StrCat(Name(step.before.round), " breaks without a cause"));
    return;
  }
  const Failure& cause = *step.after.cause;
  if (cause.kind == FailureKind::kNodeJoined) return;  // only-kept-rounds-grow judges it
  if (std::holds_alternative<RunStopped>(step.event) ||
      std::holds_alternative<NodeDrained>(step.event)) {
    const bool drained = std::holds_alternative<NodeDrained>(step.event);
    if (cause.kind != (drained ? FailureKind::kNodeDrained : FailureKind::kRunStopped)) {
      Fail("first-cause", "somebody's word breaks a round, and the cause is another");
    }
    return;
  }
  const auto* reported = std::get_if<NodeReported>(&step.event);
  const auto* failed = reported == nullptr ? nullptr : std::get_if<WorkerFailed>(&reported->report);
  if (failed != nullptr) {
    if (failed->failure.kind != cause.kind || failed->failure.rank != cause.rank ||
        ExitCodeOf(failed->failure) != cause.exit_code || failed->failure.signal != cause.signal) {
      Fail("first-cause", "a worker's failure breaks a round, and the cause is another");
    }
    return;
  }
  const auto* leave = reported == nullptr ? nullptr : std::get_if<Leave>(&reported->report);
  if (leave != nullptr && cause.kind == leave->reason.kind && cause.signal == leave->reason.signal)
    return;
  for (const auto& [id, member] : step.before.members) {
    const Member* after = Find(step.after, id);
    if (after == nullptr && InRound(member)) return;
    // notices-drain-who-goes judges it.
    if (cause.kind == FailureKind::kNodeDrained && after != nullptr &&
        after->drained_by != member.drained_by)
      return;
  }
  Fail("first-cause",
       absl::StrCat(Name(step.before.round), " breaks, and nobody failed, left or was lost"));
}

// A worker whose collective has lost a peer is not what a round is said to have broken of, if one
// that failed by itself was reported by a node that had not stopped. Among equals it is the first.
void Invariants::VictimsAreNoCause(const SimStep& step) {
  Run& run = runs_[step.run];
  const auto* reported = std::get_if<NodeReported>(&step.event);
  const auto* failed = reported == nullptr ? nullptr : std::get_if<WorkerFailed>(&reported->report);
  const Member* member = failed == nullptr ? nullptr : FindByLink(step.before, reported->link);
  const bool in_time = member != nullptr && InRound(*member) &&
                       member->phase != MemberPhase::kStopped && failed->round == step.before.round;
  if (in_time) {
    const bool is_symptom = failed->failure.kind == FailureKind::kCollectiveFailed ||
                            failed->failure.message == kBrokenCollectiveWords;
    std::optional<Failure>& first = is_symptom ? run.first_symptom : run.first_origin;
    if (!first) {
      first = failed->failure;
      first->exit_code = ExitCodeOf(failed->failure);
    }
  }
  const bool was_open =
      step.before.phase == RunPhase::kSealed || step.before.phase == RunPhase::kBroken;
  const bool ends =
      was_open && (step.after.round != step.before.round || step.after.phase == RunPhase::kClosed);
  if (!ends) return;
  const std::optional<Failure> expected = run.first_origin ? run.first_origin : run.first_symptom;
  run.first_origin.reset();
  run.first_symptom.reset();
  // In one step the next round may be sealed.
  const auto& cause = step.after.cause ? step.after.cause : step.after.last_cause;
  if (!cause || cause->rank < 0 || !expected) return;
  if (step.after.verdict && step.after.verdict->success) return;
  if (cause->kind != expected->kind || cause->rank != expected->rank ||
      cause->exit_code != expected->exit_code || cause->signal != expected->signal) {
    Fail("victims-are-no-cause",
         absl::StrCat(Name(step.before.round), " is said to have broken since ", ToSentence(*cause),
                      ", and not since ", ToSentence(*expected)));
  }
}

// Whatever a report claims: a failure is that of the node that reports it, and of its own ranks.
void Invariants::MembersSpeakForThemselves(const SimStep& step) {
  const auto* reported = std::get_if<NodeReported>(&step.event);
  if (reported == nullptr || !step.after.cause || step.after.cause == step.before.cause) return;
  const bool failed = std::holds_alternative<WorkerFailed>(reported->report);
  if (!failed && !std::holds_alternative<Leave>(reported->report)) return;
  const Member* member = FindByLink(step.before, reported->link);
  const Failure& cause = *step.after.cause;
  // That too few are left is the run's failure, and nobody's.
  if (member == nullptr || cause.kind == FailureKind::kJoinTimeout) return;
  const int last = member->rank_first + member->join.local_world_size - 1;
  const bool ranks_are_own = !failed || (cause.rank >= member->rank_first && cause.rank <= last);
  if (cause.host != member->join.host || cause.node_rank != member->node_rank.value_or(-1) ||
      !ranks_are_own) {
    Fail("members-speak-for-themselves",
         absl::StrCat("node ", member->join.node_id.value,
                      " reports, and the failure is said to be that of host ", cause.host));
  }
}

// All nodes are told one verdict.
void Invariants::OneVerdictForAll(const SimStep& step) {
  Run& run = runs_[step.run];
  for (const MembershipEffect& effect : step.effects) {
    const auto* send = std::get_if<SendDirective>(&effect);
    const auto* finish = send == nullptr ? nullptr : std::get_if<Finish>(&send->directive);
    if (finish == nullptr) continue;
    // A node that leaves is told so, and the run goes on or ends for another reason.
    if (finish->verdict.cause && finish->verdict.cause->kind == FailureKind::kNodeDrained) continue;
    const Member* leaver = FindByLink(step.before, send->link);
    if (leaver != nullptr && Find(step.after, leaver->join.node_id) == nullptr) continue;
    if (!run.told_verdict) run.told_verdict = finish->verdict;
    if (!(*run.told_verdict == finish->verdict))
      Fail("one-verdict-for-all", "two nodes are told different verdicts");
  }
  if (step.after.verdict && step.after.verdict->success && !(step.before.verdict)) {
    for (const auto& [id, member] : step.after.members) {
      if (InRound(member) && member.phase != MemberPhase::kSucceeded) {
        Fail("one-verdict-for-all",
             absl::StrCat("the run is a success, and node ", id.value, " has not succeeded"));
      }
    }
  }
}

// A node is taken out of the run for one of the reasons that there are, and no other.
void Invariants::LosesOnlyWhoIsLost(const SimStep& step) {
  if (step.before.phase == RunPhase::kClosed) return;
  for (const auto& [id, member] : step.before.members) {
    if (Find(step.after, id) != nullptr) continue;
    const auto* reported = std::get_if<NodeReported>(&step.event);
    const auto* joined = std::get_if<NodeJoined>(&step.event);
    const auto* gone = std::get_if<NodeGone>(&step.event);
    const auto lease = step.before.rules->lease;
    const bool left = reported != nullptr && member.link == reported->link;
    const std::optional<int> asks = joined == nullptr ? std::nullopt : joined->join.node_rank;
    const bool replaced =
        asks && !member.link && (asks == member.node_rank || asks == member.join.node_rank);
    const bool dropped = gone != nullptr && member.link == gone->link && lease.count() == 0;
    const bool ticked = std::holds_alternative<Tick>(step.event);
    const bool silent = ticked && lease.count() > 0 && nodes_[id].last_seen + lease <= step.now;
    const bool slow = ticked && step.before.phase == RunPhase::kBroken &&
                      member.phase == MemberPhase::kStopping &&
                      step.now >= step.before.broke + kStopTimeout;
    const bool left_out = restarts_.IsLeftOut(step.run, member.join.host, step.now);
    const auto* asked = std::get_if<NodeDrained>(&step.event);
    const bool drained = (asked != nullptr && asked->node_id == id) || !member.drained_by.empty() ||
                         GoesByNotice(step, member);
    // A node that has said so is let go when its workers have ended, or when the next round forms.
    if (member.leaving) continue;
    if (!left && !replaced && !dropped && !silent && !slow && !left_out && !drained) {
      Fail("loses-only-who-is-lost",
           absl::StrCat("node ", id.value, " is taken out of the run for no reason"));
    }
  }
}

// Nodes with a notice are drained together, if those that stay are enough: when the workers of all
// have saved, or at half of the time. A spare goes at once.
void Invariants::NoticesDrainWhoGoes(const SimStep& step) {
  const PreemptionReport* report = NoticeIn(step);
  const bool due = step.before.drain_due && *step.before.drain_due <= step.now;
  if (step.before.phase == RunPhase::kClosed || (!due && report == nullptr)) return;
  bool drains = false;
  bool all_saved = true;
  int staying = 0;
  for (const auto& [id, member] : step.before.members) {
    const bool is_own = report != nullptr && member.link == std::get<NodeReported>(step.event).link;
    const std::uint64_t saved = is_own && report->saved != 0 ? report->saved : member.saved_for;
    if (member.phase == MemberPhase::kRunning && step.before.preemption)
      all_saved = all_saved && saved == step.before.preemption->number;
    if (member.leaving || !member.drained_by.empty()) continue;
    const Member* after = Find(step.after, id);
    const bool goes = GoesByNotice(step, member);
    const bool drained = after != nullptr ? !after->drained_by.empty() : IsDrainedIn(step, id);
    staying += !goes;
    if (drained && !goes)
      Fail("notices-drain-who-goes", absl::StrCat("node ", id.value, " is drained without one"));
    const bool is_spare = step.before.phase == RunPhase::kSealed && !InRound(member);
    drains = drains || (drained && !is_spare);
  }
  if (!drains) return;
  if (staying < step.before.rules->nodes_min)
    Fail("notices-drain-who-goes", "nodes are drained, and those that stay are too few");
  if (report != nullptr && report->saved != 0 && !due && !all_saved)
    Fail("notices-drain-who-goes", "nodes are drained before the workers of all have saved");
}

// The service goes with the node that hosts it. A run is closed once the workers of all nodes have
// ended, and nobody lets that node go before, unless it does not wait.
void Invariants::TheHostLeavesLast(const SimStep& step) {
  const auto* reported = std::get_if<NodeReported>(&step.event);
  const auto* leave = reported == nullptr ? nullptr : std::get_if<Leave>(&reported->report);
  if (step.before.phase == RunPhase::kClosed || (leave != nullptr && leave->at_once)) return;
  const bool closes = step.after.phase == RunPhase::kClosed;
  for (const auto& [id, member] : step.before.members) {
    const Member* after = Find(step.after, id);
    if (closes && after != nullptr && after->phase == MemberPhase::kStopping) {
      Fail("the-host-leaves-last", absl::StrCat("the run is closed while workers of node ",
                                                id.value, " are being stopped"));
    }
    if (!closes && after == nullptr && member.leaving && member.join.hosts_service &&
        reported != nullptr) {
      Fail("the-host-leaves-last",
           absl::StrCat("node ", id.value, " hosts the service and is let go before the others"));
    }
  }
}

// A stream may break while Finish is on its way: the node comes back for it.
void Invariants::TheVerdictIsKeptUntilItIsTaken(const SimStep& step) {
  const auto* gone = std::get_if<NodeGone>(&step.event);
  if (gone == nullptr || step.before.phase != RunPhase::kClosed) return;
  const Member* member = FindByLink(step.before, gone->link);
  if (member == nullptr || step.before.rules->lease.count() == 0) return;
  if (Find(step.after, member->join.node_id) == nullptr) {
    Fail("the-verdict-is-kept-until-it-is-taken",
         absl::StrCat("node ", member->join.node_id.value, " is forgotten as its stream ends"));
  }
}

// ---- What is remembered

void Invariants::Observe(const SimStep& step) {
  if (const auto* joined = std::get_if<NodeJoined>(&step.event)) {
    const auto link = step.after.links.find(joined->link);
    if (link != step.after.links.end()) nodes_[link->second].last_seen = step.now;
    return;
  }
  std::optional<LinkId> link;
  if (const auto* reported = std::get_if<NodeReported>(&step.event)) link = reported->link;
  if (const auto* gone = std::get_if<NodeGone>(&step.event)) link = gone->link;
  if (!link) return;
  if (const auto it = step.before.links.find(*link); it != step.before.links.end())
    nodes_[it->second].last_seen = step.now;
}

void Invariants::Note(const SimStep& step) {
  for (const auto& entry : step.after.members) {
    Node& node = nodes_[entry.first];
    // A run that is over keeps its members until they have their verdict, also one that is in the
    // next run already.
    if (step.run <= node.run) continue;
    // In a run that began when the one before was over it was told nothing.
    node.run = step.run;
    node.told = kNoRound;
    node.told_accepted = false;
    node.lost_in.reset();
  }
  // A node that did not hear that it was accepted, and was lost meanwhile, joins anew.
  const auto* joined = std::get_if<NodeJoined>(&step.event);
  if (joined != nullptr && !joined->join.resume &&
      Find(step.after, joined->join.node_id) != nullptr) {
    nodes_[joined->join.node_id].lost_in.reset();
  }
  if (step.before.phase == RunPhase::kClosed) return;
  for (const auto& entry : step.before.members) {
    if (Find(step.after, entry.first) == nullptr) nodes_[entry.first].lost_in = step.before.round;
  }
}

void Invariants::OnDirective(SimRunNumber run, const NodeId& node, const Directive& directive) {
  Node& of = nodes_[node];
  if (of.run != run) return;
  if (std::holds_alternative<Accepted>(directive)) of.told_accepted = true;
  if (const auto* start = std::get_if<Start>(&directive)) of.told = start->round;
}

// What a node was told is known to the service that comes back: who is a member, and of which
// round.
void Invariants::Recovered(const std::map<SimRunNumber, const RunState*>& runs) {
  for (auto& [id, node] : nodes_) {
    const auto run = runs.find(node.run);
    if (run == runs.end()) {
      const auto was = runs_.find(node.run);
      const bool over = was != runs_.end() && was->second.phase == RunPhase::kClosed;
      if (node.told_accepted && !node.lost_in && !over) {
        Fail("what-was-said-is-kept",
             absl::StrCat("the service came back without the run of node ", id.value));
      }
      continue;
    }
    const RunState& state = *run->second;
    const bool member = state.members.contains(id);
    if (node.told_accepted && !node.lost_in && !member && state.phase != RunPhase::kClosed) {
      Fail("what-was-said-is-kept", absl::StrCat("the service came back without node ", id.value,
                                                 ", which was told that it is in the run"));
    }
    if (member && node.told > state.round) {
      Fail("what-was-said-is-kept",
           absl::StrCat("the service came back in ", Name(state.round), ", and node ", id.value,
                        " was told to start ", Name(node.told)));
    }
    // What was decided and told to nobody did not happen.
    if (member) node.lost_in.reset();
    if (member) node.last_seen = state.members.at(id).last_seen;
  }
  for (auto& [number, run] : runs_) {
    const auto it = runs.find(number);
    if (it == runs.end()) continue;
    run.phase = it->second->phase;
    std::erase_if(run.starts, [&](const auto& of) { return of.first > it->second->round; });
    if (it->second->phase == RunPhase::kForming) run.starts.erase(it->second->round);
    run.told_verdict = it->second->verdict;
    restarts_.Recovered(number, *it->second);
    // What was reported and not written down did not happen.
    run.first_origin.reset();
    run.first_symptom.reset();
    if (it->second->phase == RunPhase::kBroken && it->second->cause->rank >= 0) {
      const bool is_symptom = it->second->cause->message == kBrokenCollectiveWords;
      (is_symptom ? run.first_symptom : run.first_origin) = *it->second->cause;
    }
    run.phase_since = TimePoint{};
  }
}

void Invariants::ReplayedOtherwise(SimRunNumber run) {
  Fail("what-was-said-is-kept",
       absl::StrCat("run ", run, " comes back from the journal otherwise than it was"));
}

void Invariants::WorkersStarted(const NodeId& node, const Start& start) {
  WorkersRunWhatTheRoundSays(node, start);
  FencedNodesStayOut(node, start);
  OneLiveRound(node, start);
  nodes_[node].live = start.round;
}

void Invariants::WorkersGone(const NodeId& node) { nodes_[node].live.reset(); }

// ---- The training

// A world that no later one has followed, but for nodes that are lost and have not heard of it.
void Invariants::WorldMakesStep(SimRunNumber run, RoundId round, const std::set<NodeId>& nodes) {
  RoundId& latest = runs_[run].stepped;
  if (latest <= round) {
    latest = round;
    return;
  }
  for (const NodeId& node : nodes) {
    if (nodes_[node].lost_in) continue;
    Fail("one-world-steps",
         absl::StrCat("the world of ", Name(round), ", with node ", node.value,
                      ", makes a step after that of ", Name(latest), " has made one"));
  }
}

void Invariants::WrongTraining(absl::string_view invariant, absl::string_view sentence) {
  Fail(invariant, sentence);
}

// ---- The store

void Invariants::Judge(const std::string& sentence) {
  if (ok()) failure_ = sentence;
}

StoreInvariants::Asked Invariants::Asked(const NodeId& node, const StoreOp& op) {
  return store_.Ask({nodes_[node].run, op.round}, op);
}

void Invariants::Answered(const StoreInvariants::Asked& asked, const StoreResult& result) {
  Judge(store_.Answer(asked, result));
}

void Invariants::Met(const NodeId& node, const Start& start) {
  Judge(store_.Met({nodes_[node].run, start.round}, start.world_size));
}

void Invariants::Mutated(const StoreOp& op, RoundId of_run, RoundId of_store) {
  Judge(store_.Mutated(op.round, of_run, of_store));
}

void Invariants::StoreIsOf(RoundId of_run, RoundId of_store) {
  if (of_run == of_store) return;
  Fail("rounds-are-apart",
       absl::StrCat("the run is in ", Name(of_run), " and its store in ", Name(of_store)));
}

// ---- In the end

void Invariants::NotEnded(const std::string& who, const std::string& state) {
  Fail("all-end-in-time",
       absl::StrCat("the faults are over for long, and ", who, " is still ", state));
}

void Invariants::Spins() {
  Fail("nobody-waits-for-ever", "somebody is called again and again for a deadline that is over");
}

void Invariants::Ended(const NodeId& node, const std::string& words) {
  if (nodes_[node].live) {
    Fail("all-end-in-time",
         absl::StrCat("node ", node.value, " has ended and its workers live: ", words));
  }
}

}  // namespace ddprun
