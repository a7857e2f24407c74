// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/first_cause.h"
#include "rendezvous/join_rules.h"
#include "rendezvous/limits.h"
#include "rendezvous/operator_rules.h"
#include "rendezvous/run_restarts.h"
#include "rendezvous/seating.h"
#include "rendezvous/victims.h"

namespace ddprun {
namespace {

std::chrono::milliseconds Until(TimePoint deadline, TimePoint now) {
  return std::max(std::chrono::milliseconds{0},
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now));
}

// That somebody leaves as he was asked to is no failure.
bool IsUncounted(const std::optional<Failure>& cause) { return cause && !IsFailure(*cause); }

// The nodes of a round wait for the one that may take longest.
Duration StopTimeoutOf(const RunState& state) {
  Duration longest = kStopTimeout;
  for (const auto& entry : state.members) {
    longest = std::max<Duration>(longest, entry.second.join.stop_timeout);
  }
  return longest;
}

bool MayRestart(const RunState& state) { return !WhyNoNextRound(state).has_value(); }

// Heartbeats to a lease: one may be late and one lost before the lease is over.
constexpr int kHeartbeatsPerLease = 4;

bool IsInRound(const Member& member) { return member.phase != MemberPhase::kWaiting; }

// The same agent asks once more, since its first stream broke before it was answered.
bool HasJoined(const RunState& state, const Join& join) {
  const auto it = state.members.find(join.node_id);
  return it != state.members.end() && it->second.join == join;
}

// Of a node that is a member no more.
NoteKind KindOf(const Failure& why) {
  if (why.kind == FailureKind::kNodeDrained) return NoteKind::kNodeDrained;
  return why.kind == FailureKind::kNodeInterrupted ? NoteKind::kNodeLeft : NoteKind::kNodeLost;
}

// What a worker that lost its peers reports; the loss itself is then the first cause.
bool MayBeAftermath(const Failure& cause) {
  return cause.kind == FailureKind::kWorkerExited || cause.kind == FailureKind::kWorkerSignaled ||
         cause.kind == FailureKind::kWorkerHung;
}

// One step: the state, the time, and the effects so far. The cases stand in the order of the
// diagram in README.md.
class Stepper {
 public:
  Stepper(RunState& state, TimePoint now) : state_(state), now_(now) {}

  void operator()(const NodeJoined& event);
  void operator()(const NodeReported& event);
  void operator()(const NodeGone& event);
  void operator()(const NodeLost& event);
  void operator()(const RunStopped& event);
  void operator()(const NodeDrained& event);
  void operator()(const Tick&);

  std::vector<MembershipEffect> TakeEffects() { return std::move(effects_); }

 private:
  // Reports of a member.
  void On(Member& member, const Join&);
  void On(Member& member, const WorkerFailed& report);
  void On(Member& member, const NodeSucceeded& report);
  void On(Member& member, const NodeStopped& report);
  void On(Member& member, const Leave& report);
  void On(Member& member, const Heartbeat& report);
  void On(Member&, const LogLines&) {}  // for the run's log desk, which has taken it

  // Members.
  void Enter(LinkId link, const Join& join, const Member* replaced);
  void Resume(LinkId link, Member& member);
  void Link(LinkId link, Member& member);
  void SetPhase(Member& member, MemberPhase phase);
  void Count(MemberPhase phase, int more);
  struct Loss {
    Failure reason;
    bool was_in_round = false;
    bool was_silent_before_the_break = false;
    bool was_dead_before_it_stopped = false;
  };
  Loss Erase(const NodeId& id, Failure reason);
  void React(std::vector<Loss> losses);
  void RemoveMember(const NodeId& id, Failure reason);
  bool IsTheCause(const Loss& loss) const;
  void ForgiveIfStopped();
  std::optional<std::pair<NodeId, Failure>> TakePlace(const Join& join);
  void EndLeases();
  void LetGo(const NodeId& id, const Failure& reason);
  void LetDrainedGo();

  // Transitions.
  void SealIfReady();
  void Seal(std::vector<Member*> chosen);
  void Break(const Failure& cause);
  void Correct(Failure cause);
  void AdvanceIfStopped();
  void FormNextRound();
  std::chrono::milliseconds CountRestartIfFailed();
  void LeaveOutIfDue();
  void CloseWithFailure(Failure cause);
  void Close(Verdict verdict);

  Start StartOf(const Member& member) const;
  void TellWaiting(Member* newcomer = nullptr);
  void Tell(Member& member);
  Verdict MakeVerdict() const;

  Failure LossOf(const Member& member, std::string message) const {
    Failure loss;
    loss.kind = FailureKind::kNodeLost;
    loss.host = member.join.host;
    loss.node_rank = member.node_rank.value_or(-1);
    loss.message = std::move(message);
    return loss;
  }
  void Send(LinkId link, Directive directive) {
    effects_.emplace_back(std::in_place_type<SendDirective>,
                          SendDirective{link, std::move(directive)});
  }
  void SendTo(const Member& member, Directive directive) {
    if (member.link) Send(*member.link, std::move(directive));
  }
  // In place, since GCC 12 takes the move of a variant made of the small type for a use of the
  // large one's members.
  void End(LinkId link) { effects_.emplace_back(std::in_place_type<EndStream>, EndStream{link}); }
  void Refuse(LinkId link, absl::Status status) {
    Send(link, Refused{std::move(status)});
    End(link);
  }

  // What those who watch are told.
  Noted& Note(NoteKind kind, const Member* member = nullptr) {
    Noted note;
    note.kind = kind;
    note.round = state_.round;
    note.restart_count = state_.restart_count;
    if (member != nullptr) {
      note.node_id = member->join.node_id;
      note.host = member->join.host;
      note.node_rank = member->node_rank;
    }
    return std::get<Noted>(effects_.emplace_back(std::in_place_type<Noted>, std::move(note)));
  }

  RunState& state_;
  const TimePoint now_;
  std::vector<MembershipEffect> effects_;
};

// ---- Events

void Stepper::operator()(const NodeJoined& event) {
  const Join& join = event.join;
  if (std::optional<Refused> refused = RefusalOfLeftOut(state_, join, now_)) {
    Noted& note = Note(NoteKind::kNodeRefused);
    note.host = join.host;
    note.words = std::string(refused->status.message());
    Send(event.link, *std::move(refused));
    End(event.link);
    return;
  }
  if (join.resume || HasJoined(state_, join)) {
    const auto it = state_.members.find(join.node_id);
    if (absl::Status status = CheckResume(state_, join); !status.ok()) {
      Refuse(event.link, std::move(status));
    } else {
      Resume(event.link, it->second);
    }
    return;
  }
  if (absl::Status status = CheckJoin(state_, join); !status.ok()) {
    Noted& note = Note(NoteKind::kNodeRefused);
    note.host = join.host;
    note.words = std::string(status.message());
    Refuse(event.link, std::move(status));
    return;
  }
  const std::optional<std::pair<NodeId, Failure>> replaced = TakePlace(join);
  Enter(event.link, join, replaced ? &state_.members.at(replaced->first) : nullptr);
  if (replaced) RemoveMember(replaced->first, replaced->second);
}

void Stepper::operator()(const NodeReported& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  Member& member = state_.members.at(it->second);
  member.heard = now_;
  std::visit([&](const auto& report) { On(member, report); }, event.report);
}

void Stepper::operator()(const NodeGone& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  const NodeId id = it->second;
  Member& member = state_.members.at(id);
  state_.links.erase(it);
  member.link.reset();
  member.heard = now_;
  if (state_.phase != RunPhase::kClosed) Note(NoteKind::kNodeAway, &member);
  if (state_.phase == RunPhase::kClosed || state_.rules->lease.count() == 0) {
    RemoveMember(id, LossOf(member,
                            "its connection to the rendezvous service ended without a word; check "
                            "that machine and its network"));
    return;
  }
  TellWaiting();
}

void Stepper::operator()(const NodeLost& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end()) return;
  const Member& member = it->second;
  // Should that agent live after all, it must stop its workers. In a closed run its stream has been
  // ended already.
  if (member.link && state_.phase != RunPhase::kClosed) {
    Refuse(*member.link, FencedAsDead(state_, member, event.reason));
  }
  const bool stopping = member.phase == MemberPhase::kStopping;
  Loss loss = Erase(event.node_id, LossOf(member, event.reason));
  loss.was_dead_before_it_stopped = stopping;
  std::vector<Loss> losses;
  losses.push_back(std::move(loss));
  React(std::move(losses));
}

void Stepper::operator()(const RunStopped& event) {
  if (state_.phase == RunPhase::kClosed || !state_.rules) return;
  Failure cause = StopFailure(event.by, event.now);
  // What was ending anyway ends for its own reason.
  const bool decides = state_.phase != RunPhase::kBroken || MayRestart(state_) ||
                       state_.cause->kind == FailureKind::kRunStopped;
  state_.may_restart = false;
  switch (state_.phase) {
    case RunPhase::kForming:
      CloseWithFailure(std::move(cause));
      return;
    case RunPhase::kSealed:
      Break(cause);
      return;
    case RunPhase::kBroken:
      for (const auto& entry : state_.members) {
        if (entry.second.phase == MemberPhase::kStopping) {
          SendTo(entry.second, Stop{state_.round, cause, /*last=*/true});
        }
      }
      if (decides) state_.cause = std::move(cause);
      return;
    case RunPhase::kClosed:
      return;
  }
}

void Stepper::operator()(const NodeDrained& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end() || state_.phase == RunPhase::kClosed) return;
  Member& member = it->second;
  Failure reason = DrainFailure(member, event.by);
  if (!IsInRound(member)) {
    LetGo(event.node_id, reason);
    React({Loss{std::move(reason)}});
    return;
  }
  member.drained_by = event.by;
  if (state_.phase == RunPhase::kSealed && !event.at_next_round) Break(reason);
}

void Stepper::operator()(const Tick&) {
  EndLeases();
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.rules) return;
      SealIfReady();
      if (state_.phase == RunPhase::kForming && now_ >= state_.deadline) {
        CloseWithFailure(JoinTimeoutFailure(state_));
        return;
      }
      TellWaiting();
      return;
    case RunPhase::kBroken: {
      if (now_ < state_.deadline) {
        TellWaiting();
        return;
      }
      std::vector<NodeId> late;
      for (const auto& [id, member] : state_.members) {
        if (member.phase == MemberPhase::kStopping) late.push_back(id);
      }
      for (const NodeId& id : late) {
        const Member& member = state_.members.at(id);
        if (member.link) {
          Refuse(*member.link, StoppedTooLate(state_, member));
        }
        RemoveMember(id, LossOf(member, "it did not stop its workers in time"));
      }
      return;
    }
    case RunPhase::kSealed:
      TellWaiting();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// ---- Reports. One of another round than the current is late and means nothing any more.

void Stepper::On(Member& member, const Join&) {
  if (state_.phase == RunPhase::kClosed) return;
  Refuse(*member.link,
         absl::InvalidArgumentError("Join is the first report of a stream, and only the first"));
  RemoveMember(member.join.node_id, LossOf(member, "its agent joined twice on one connection"));
}

void Stepper::On(Member& member, const WorkerFailed& report) {
  const bool breaks = state_.phase == RunPhase::kSealed && IsInRound(member);
  const bool stops = state_.phase == RunPhase::kBroken && member.phase == MemberPhase::kStopping;
  if ((!breaks && !stops) || report.round != state_.round) return;
  Failure cause = report.failure;
  if (cause.host.empty()) cause.host = member.join.host;
  if (cause.node_rank < 0) cause.node_rank = *member.node_rank;
  if (breaks) {
    Break(cause);
  } else if (TakesThePlaceOf(cause, *state_.cause)) {
    LearnFrom(*state_.cause, cause);
    Correct(std::move(cause));
  } else {
    LearnFrom(cause, *state_.cause);
  }
}

void Stepper::On(Member& member, const Heartbeat& report) {
  if (state_.phase != RunPhase::kSealed || !IsInRound(member)) return;
  if (report.progress_round == state_.round && report.progress.step >= 0) {
    Progressed(state_.restarts, report.progress.step);
  }
}

void Stepper::On(Member& member, const NodeSucceeded& report) {
  if (state_.phase != RunPhase::kSealed || report.round != state_.round || !IsInRound(member))
    return;
  SetPhase(member, MemberPhase::kSucceeded);
  Note(NoteKind::kNodeSucceeded, &member);
  if (state_.running > 0) return;
  Verdict verdict = MakeVerdict();
  verdict.success = true;
  Close(std::move(verdict));
}

void Stepper::On(Member& member, const NodeStopped& report) {
  if (state_.phase != RunPhase::kBroken || report.round != state_.round) return;
  if (member.phase != MemberPhase::kStopping) return;
  SetPhase(member, MemberPhase::kStopped);
  if (report.worker_port > 0) member.join.worker_port = report.worker_port;
  const int size = member.join.local_world_size;
  for (const WorkerEnds& ends : report.ends) {
    if (ends.first < 0 || ends.count <= 0 || ends.count > size - ends.first) continue;
    const int first = member.rank_first + ends.first;
    AddVictims(ends.kind, ends.code, {first, first + ends.count - 1}, state_.victims);
  }
  AdvanceIfStopped();
}

void Stepper::On(Member& member, const Leave& report) {
  if (state_.phase == RunPhase::kClosed) return;
  Failure reason = report.reason;
  if (reason.host.empty()) reason.host = member.join.host;
  if (reason.node_rank < 0) reason.node_rank = member.node_rank.value_or(-1);
  if (report.close_run) state_.may_restart = false;
  End(*member.link);
  RemoveMember(member.join.node_id, std::move(reason));
}

// ---- Members

// Whoever replaces a node goes before those who stand by, as it did.
void Stepper::Enter(LinkId link, const Join& join, const Member* replaced) {
  if (!state_.rules) {
    state_.rules = RulesOf(join);
    state_.deadline = now_ + state_.rules->join_timeout;
  }
  ForgiveLeftOut(state_.restarts, join.host);
  Member& member = state_.members[join.node_id];
  member.join = join;
  member.order = replaced != nullptr ? replaced->order : ++state_.joins;
  member.seated = replaced != nullptr && replaced->seated;
  Count(member.phase, 1);
  if (join.node_rank) {
    // Where a round that runs has given it to another, it is free in the next.
    if (state_.places.emplace(*join.node_rank, join.node_id).second) {
      member.node_rank = join.node_rank;
    }
    state_.asked[*join.node_rank] = join.node_id;
  }
  Link(link, member);
  Note(NoteKind::kNodeJoined, &member);
  SealIfReady();
  TellWaiting(&member);
}

// What was under way when the stream broke may not have arrived: the node is told again where the
// run is, and says again what it said of its round.
void Stepper::Resume(LinkId link, Member& member) {
  if (member.link) {
    if (state_.phase != RunPhase::kClosed) End(*member.link);
    state_.links.erase(*member.link);
  }
  Link(link, member);
  Note(NoteKind::kNodeReturned, &member);
  member.words_told = 0;
  if (state_.phase == RunPhase::kClosed) {
    if (state_.verdict) Send(link, Finish{*state_.verdict});
    End(link);
    return;
  }
  if (member.phase == MemberPhase::kRunning) Send(link, StartOf(member));
  if (member.phase == MemberPhase::kStopping)
    Send(link, Stop{state_.round, *state_.cause, IsEnding(state_)});
  SealIfReady();
  TellWaiting(&member);
}

void Stepper::Link(LinkId link, Member& member) {
  member.link = link;
  member.heard = now_;
  state_.links.emplace(link, member.join.node_id);
  const auto lease = state_.rules->lease;
  if (lease.count() > 0 && !state_.lease_due) state_.lease_due = now_ + lease;
  Send(link,
       // Without a lease a stream's end is its node's end, whoever writes it down.
       Accepted{.lease = lease,
                .heartbeat = lease / kHeartbeatsPerLease,
                .durable = state_.durable && lease.count() > 0});
}

void Stepper::SetPhase(Member& member, MemberPhase phase) {
  Count(member.phase, -1);
  member.phase = phase;
  Count(member.phase, 1);
}

void Stepper::Count(MemberPhase phase, int more) {
  if (phase == MemberPhase::kWaiting) state_.waiting += more;
  if (phase == MemberPhase::kRunning) state_.running += more;
  if (phase == MemberPhase::kStopping) state_.stopping += more;
}

// A node that comes anew with the rank of one that is away is that machine's next agent, or its
// replacement: whoever is still there under the old one is fenced. Who is to be removed, and why.
std::optional<std::pair<NodeId, Failure>> Stepper::TakePlace(const Join& join) {
  if (!join.node_rank) return std::nullopt;
  const auto asked = state_.asked.find(*join.node_rank);
  const auto place = state_.places.find(*join.node_rank);
  if (asked == state_.asked.end() && place == state_.places.end()) return std::nullopt;
  const NodeId id = asked != state_.asked.end() ? asked->second : place->second;
  Failure loss =
      LossOf(state_.members.at(id), absl::StrCat("its connection had ended, and node ", join.host,
                                                 " came with its --node-rank ", *join.node_rank));
  if (place != state_.places.end() && place->second == id) {
    state_.members.at(id).node_rank.reset();
    state_.places.erase(place);
  }
  return std::pair(id, std::move(loss));
}

Stepper::Loss Stepper::Erase(const NodeId& id, Failure reason) {
  const auto it = state_.members.find(id);
  Member& member = it->second;
  if (state_.phase != RunPhase::kClosed) Note(KindOf(reason), &member).why = reason;
  Loss loss{std::move(reason), IsInRound(member)};
  loss.was_silent_before_the_break =
      member.phase == MemberPhase::kStopping &&
      member.heard + (member.link ? state_.rules->lease / 2 : Duration{0}) < state_.broke;
  Count(member.phase, -1);
  if (IsInRound(member) && member.phase != MemberPhase::kStopped) {
    const int first = member.rank_first;
    AddLostNode(member.join.host, {first, first + member.join.local_world_size - 1},
                state_.victims);
  }
  if (member.link) state_.links.erase(*member.link);
  if (member.node_rank) {
    const auto place = state_.places.find(*member.node_rank);
    if (place != state_.places.end() && place->second == id) state_.places.erase(place);
  }
  const auto asked = state_.asked.find(member.join.node_rank.value_or(-1));
  if (asked != state_.asked.end() && asked->second == id) state_.asked.erase(asked);
  state_.members.erase(it);
  return loss;
}

// Told in a verdict of its own: the run goes on.
void Stepper::LetGo(const NodeId& id, const Failure& reason) {
  const Member& member = state_.members.at(id);
  if (member.link) {
    Verdict verdict = MakeVerdict();
    verdict.cause = reason;
    Send(*member.link, Finish{std::move(verdict)});
    End(*member.link);
  }
  Erase(id, reason);
}

void Stepper::LetDrainedGo() {
  std::vector<NodeId> going;
  for (const auto& [id, member] : state_.members) {
    if (!member.drained_by.empty()) going.push_back(id);
  }
  for (const NodeId& id : going) {
    const Member& member = state_.members.at(id);
    LetGo(id, DrainFailure(member, member.drained_by));
  }
}

// Of all who are lost in one step, so that no round is started with one of them. A run without any
// node is over, whatever restarts were left: nobody is there to wait for a replacement.
void Stepper::React(std::vector<Loss> losses) {
  if (losses.empty()) return;
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.may_restart) {
        CloseWithFailure(std::move(losses.front().reason));
      } else if (state_.members.empty()) {
        state_.phase = RunPhase::kClosed;
        state_.words_due.reset();
        state_.restart_due.reset();
      } else {
        SealIfReady();
        TellWaiting();
      }
      return;
    case RunPhase::kSealed: {
      const auto first = std::find_if(losses.begin(), losses.end(),
                                      [](const Loss& loss) { return loss.was_in_round; });
      if (first != losses.end()) Break(first->reason);
      return;
    }
    case RunPhase::kBroken:
      for (Loss& loss : losses) {
        if (IsTheCause(loss)) Correct(std::move(loss.reason));
      }
      AdvanceIfStopped();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// Of a round that has broken. One whose agent died was not stopped by anyone: its peers' failures
// follow from that. Not so the death of one whose workers were gone already.
bool Stepper::IsTheCause(const Loss& loss) const {
  if (loss.reason.kind != FailureKind::kNodeLost) return false;
  return (loss.was_silent_before_the_break && MayBeAftermath(*state_.cause)) ||
         (loss.was_dead_before_it_stopped && TakesThePlaceOf(loss.reason, *state_.cause));
}

void Stepper::RemoveMember(const NodeId& id, Failure reason) {
  std::vector<Loss> losses;
  losses.push_back(Erase(id, std::move(reason)));
  React(std::move(losses));
}

// A service that looks at the time so late was itself stopped (a debugger, a virtual machine that
// moves) and heard nobody meanwhile, whoever spoke. All have half a lease to be heard.
void Stepper::ForgiveIfStopped() {
  const auto lease = state_.rules->lease;
  if (now_ - *state_.lease_due < lease / kHeartbeatsPerLease) return;
  for (auto& entry : state_.members) {
    entry.second.heard = std::max(entry.second.heard, now_ - lease / 2);
  }
}

void Stepper::EndLeases() {
  if (!state_.lease_due || now_ < *state_.lease_due) return;
  ForgiveIfStopped();
  const auto lease = state_.rules->lease;
  std::vector<std::pair<TimePoint, NodeId>> over;
  for (const auto& [id, member] : state_.members) {
    if (member.heard + lease <= now_) over.emplace_back(member.heard, id);
  }
  // The one that fell silent first may be why the others did.
  std::sort(over.begin(), over.end());
  std::vector<Loss> losses;
  for (const auto& [heard, id] : over) {
    const Member& member = state_.members.at(id);
    // In a closed run its stream has been ended already.
    if (member.link && state_.phase != RunPhase::kClosed) {
      Refuse(*member.link, FencedForSilence(state_, member));
    }
    losses.push_back(Erase(id, LossOf(member, LostWords(state_, member))));
  }
  React(std::move(losses));
  state_.lease_due.reset();
  for (const auto& entry : state_.members) {
    const TimePoint due = entry.second.heard + lease;
    state_.lease_due = state_.lease_due ? std::min(*state_.lease_due, due) : due;
  }
}

// ---- Transitions

void Stepper::SealIfReady() {
  if (state_.phase != RunPhase::kForming) return;
  if (state_.restart_due && now_ < *state_.restart_due) return;
  state_.restart_due.reset();
  const auto here = static_cast<int>(state_.members.size());
  if (here < state_.rules->nodes_min) {
    state_.last_call_due.reset();
    return;
  }
  // Nobody is awaited in the place of one that was asked to leave.
  const bool full = here >= state_.rules->nodes_max || IsUncounted(state_.cause);
  if (!state_.last_call_due) {
    state_.last_call_due = std::min(now_ + state_.rules->last_call, state_.deadline);
  }
  if (!full && now_ < *state_.last_call_due) return;
  std::vector<Member*> chosen = ChooseForRound(state_);
  // One that is away keeps its place until its lease is over.
  const bool all_here = std::all_of(chosen.begin(), chosen.end(),
                                    [](const Member* member) { return member->link.has_value(); });
  if (all_here) Seal(std::move(chosen));
}

void Stepper::Seal(std::vector<Member*> chosen) {
  GiveRanks(state_, chosen);
  Start start;
  start.round = state_.round;
  start.run_id = state_.run_id;
  start.node_count = static_cast<int>(chosen.size());
  start.master_addr = chosen.front()->join.address;
  start.master_port = chosen.front()->join.worker_port;
  start.restart_count = state_.restart_count;
  start.restarts_max = state_.rules->restarts_max;
  start.restarts_forgiven = state_.restart_count - state_.restarts.used;
  start.left_out = state_.left_out;
  start.world_size = 0;
  for (Member* member : chosen) {
    member->rank_first = start.world_size;
    start.world_size += member->join.local_world_size;
  }
  GiveRoleRanks(chosen);
  state_.phase = RunPhase::kSealed;
  state_.sealed = now_;
  Noted& note = Note(NoteKind::kRoundStarted);
  note.node_count = start.node_count;
  note.world_size = start.world_size;
  if (state_.cause) state_.last_cause = std::exchange(state_.cause, std::nullopt);
  state_.start = std::move(start);
  state_.words_due.reset();
  state_.last_call_due.reset();
  for (Member* member : chosen) {
    member->seated = true;
    SetPhase(*member, MemberPhase::kRunning);
    SendTo(*member, StartOf(*member));
  }
}

void Stepper::Break(const Failure& cause) {
  state_.phase = RunPhase::kBroken;
  Note(NoteKind::kRoundBroken).why = cause;
  state_.deadline = now_ + StopTimeoutOf(state_);
  state_.broke = now_;
  EndRound(state_.restarts, state_.rules->restart_policy, cause, now_ - state_.sealed);
  state_.words_sent.reset();
  state_.cause = cause;
  const bool last = !MayRestart(state_);
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    if (!IsInRound(member)) continue;
    SetPhase(member, MemberPhase::kStopping);
    SendTo(member, Stop{state_.round, cause, last});
  }
  AdvanceIfStopped();
  TellWaiting();
}

// The cause is another than was told when the round broke: all who were told are told again.
void Stepper::Correct(Failure cause) {
  state_.cause = std::move(cause);
  const bool last = !MayRestart(state_);
  for (const auto& entry : state_.members) {
    if (IsInRound(entry.second)) SendTo(entry.second, Stop{state_.round, *state_.cause, last});
  }
}

void Stepper::AdvanceIfStopped() {
  if (state_.phase != RunPhase::kBroken || state_.stopping > 0) return;
  // Whoever is let go has no place in the next round: without it there may be none.
  if (MayRestart(state_)) LetDrainedGo();
  if (WhyNoNextRound(state_)) {
    CloseWithFailure(*state_.cause);
  } else {
    FormNextRound();
  }
}

void Stepper::FormNextRound() {
  state_.phase = RunPhase::kForming;
  state_.round = RoundId{ToNumber(state_.round) + 1};
  if (!IsUncounted(state_.cause)) ++state_.restart_count;
  Note(NoteKind::kRestart).why = state_.cause;
  state_.victims.clear();
  const std::chrono::milliseconds delay = CountRestartIfFailed();
  state_.words_sent.reset();
  state_.deadline = now_ + delay + state_.rules->join_timeout;
  for (auto& entry : state_.members) SetPhase(entry.second, MemberPhase::kWaiting);
  effects_.emplace_back(std::in_place_type<RoundChanged>, RoundChanged{state_.round});
  SealIfReady();
  TellWaiting();
}

// That a node leaves as it was asked to is no failure, and nothing follows from it. Returns how
// long the next round waits.
std::chrono::milliseconds Stepper::CountRestartIfFailed() {
  state_.left_out.clear();
  if (IsUncounted(state_.cause)) return {};
  const RestartPolicy& policy = state_.rules->restart_policy;
  CountRestart(state_.restarts, policy, state_.broke);
  LeaveOutIfDue();
  const auto delay = RestartDelay(state_.restarts, policy);
  if (delay.count() > 0) state_.restart_due = now_ + delay;
  return delay;
}

// The host whose failure broke the round, if it was one too many, with all nodes that it has.
void Stepper::LeaveOutIfDue() {
  const RestartPolicy& policy = state_.rules->restart_policy;
  const Failure& cause = *state_.cause;
  if (!CountFailure(state_.restarts, policy, cause, state_.broke, now_)) return;
  state_.left_out = LeftOutWords(policy, cause.host);
  std::vector<NodeId> going;
  for (const auto& [id, member] : state_.members) {
    if (member.join.host == cause.host) going.push_back(id);
  }
  for (const NodeId& id : going) {
    const Member& member = state_.members.at(id);
    const std::optional<LinkId> link = member.link;
    Join back = member.join;
    back.resume = true;
    Erase(id, LossOf(member, state_.left_out));
    if (!link) continue;
    // As it would hear if it asked.
    if (auto refused = RefusalOfLeftOut(state_, back, now_)) Send(*link, *std::move(refused));
    End(*link);
  }
}

void Stepper::CloseWithFailure(Failure cause) {
  Verdict verdict = MakeVerdict();
  if (state_.phase == RunPhase::kBroken) {
    verdict.not_restarted = WhyNoNextRound(state_).value_or("");
  }
  verdict.exit_code = ToExitCode(cause);
  verdict.victims = ToShow(state_.victims, cause.rank);
  state_.cause = cause;
  verdict.cause = std::move(cause);
  Close(std::move(verdict));
}

// Members that are away may come back for the verdict until their lease is over.
void Stepper::Close(Verdict verdict) {
  state_.phase = RunPhase::kClosed;
  Noted& note = Note(NoteKind::kRunFinished);
  note.why = verdict.cause;
  note.exit_code = verdict.exit_code;
  note.node_count = verdict.node_count;
  note.world_size = verdict.world_size;
  state_.words.clear();
  state_.words_due.reset();
  state_.last_call_due.reset();
  state_.restart_due.reset();
  for (const auto& entry : state_.members) {
    if (!entry.second.link) continue;
    SendTo(entry.second, Finish{verdict});
    End(*entry.second.link);
  }
  state_.verdict = std::move(verdict);
}

// ---- Parts

Start Stepper::StartOf(const Member& member) const {
  Start start = *state_.start;
  start.node_rank = *member.node_rank;
  start.rank_first = member.rank_first;
  start.role_rank_first = member.role_rank_first;
  start.role_world_size = member.role_world_size;
  return start;
}

// A node that has just joined is told at once; the others when the words have changed and the last
// ones are old enough.
void Stepper::TellWaiting(Member* newcomer) {
  if (!state_.rules || state_.phase == RunPhase::kClosed) return;
  if (state_.waiting == 0) {
    state_.words_due.reset();
    return;
  }
  const auto intervals = static_cast<int>(1 + state_.members.size() / kNodesPerWaitingInterval);
  const TimePoint due =
      state_.words_sent ? *state_.words_sent + intervals * kWaitingInterval : now_;
  const bool all = now_ >= due;
  // Finding the words costs time in the number of nodes: a large run's nodes hear those of the last
  // time.
  const bool exact = all || state_.words.empty() || state_.members.size() <= kExactWordsNodesMax;
  if (!exact) state_.words_due = due;
  if (exact) {
    std::string words = WaitingWords(state_);
    if (words != state_.words) {
      state_.words = std::move(words);
      ++state_.words_version;
      state_.words_due = due;
    }
  }
  if (!all) {
    if (newcomer != nullptr && newcomer->phase == MemberPhase::kWaiting &&
        newcomer->words_told != state_.words_version) {
      Tell(*newcomer);
    }
    return;
  }
  state_.words_due.reset();
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    if (member.phase != MemberPhase::kWaiting || !member.link ||
        member.words_told == state_.words_version) {
      continue;
    }
    state_.words_sent = now_;
    Tell(member);
  }
}

void Stepper::Tell(Member& member) {
  std::chrono::milliseconds remaining{0};
  if (state_.phase == RunPhase::kForming) {
    remaining = Until(FormingUntil(state_), now_);
  } else if (state_.phase == RunPhase::kBroken) {
    remaining = Until(state_.deadline, now_);
  }
  member.words_told = state_.words_version;
  SendTo(member, Waiting{state_.words, remaining});
}

Verdict Stepper::MakeVerdict() const {
  Verdict verdict;
  verdict.round = state_.round;
  verdict.restart_count = state_.restart_count;
  verdict.restarts_max = state_.rules ? state_.rules->restarts_max : 0;
  // A round that broke is judged by what counted then.
  verdict.restarts_forgiven =
      RestartsForgiven(state_, state_.phase == RunPhase::kBroken ? state_.broke : now_);
  if (state_.start) {
    verdict.world_size = state_.start->world_size;
    verdict.node_count = state_.start->node_count;
  }
  return verdict;
}

}  // namespace

RunState MakeRun(std::string run_id, bool durable) {
  RunState state;
  state.run_id = std::move(run_id);
  state.durable = durable;
  return state;
}

std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now) {
  Stepper stepper(state, now);
  std::visit(stepper, event);
  return stepper.TakeEffects();
}

void Reindex(RunState& state) {
  state.links.clear();
  state.places.clear();
  state.asked.clear();
  state.waiting = state.running = state.stopping = 0;
  for (const auto& [id, member] : state.members) {
    if (member.link) state.links.emplace(*member.link, id);
    if (member.node_rank) state.places.emplace(*member.node_rank, id);
    if (member.join.node_rank) state.asked.emplace(*member.join.node_rank, id);
    state.waiting += member.phase == MemberPhase::kWaiting;
    state.running += member.phase == MemberPhase::kRunning;
    state.stopping += member.phase == MemberPhase::kStopping;
  }
}

std::optional<TimePoint> NextDeadline(const RunState& state) {
  std::optional<TimePoint> next = state.lease_due;
  const auto earlier = [&next](std::optional<TimePoint> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (!state.rules || state.members.empty()) return std::nullopt;
  if (state.phase == RunPhase::kForming || state.phase == RunPhase::kBroken) {
    earlier(state.deadline);
  }
  if (state.phase == RunPhase::kForming) earlier(state.restart_due);
  // While one that has a place is away, its lease decides.
  if (state.links.size() == state.members.size()) earlier(state.last_call_due);
  earlier(state.words_due);
  return next;
}

bool IsEnding(const RunState& state) {
  return state.phase == RunPhase::kClosed ||
         (state.phase == RunPhase::kBroken && WhyNoNextRound(state).has_value());
}

bool IsDrained(const RunState& state) {
  return state.members.empty() && (state.phase == RunPhase::kClosed || !state.rules);
}

}  // namespace ddprun
