// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/autopsy.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"

namespace ddprun {

void Autopsy::BeginRound(int rank_first) {
  rank_first_ = rank_first;
  peers_until_.reset();
  dumps_until_.reset();
}

std::vector<AutopsyEffect> Autopsy::Step(AutopsyEvent event, const Peers& peers, TimePoint now) {
  Effects effects;
  std::visit(Overloaded{[&](EndSeen& seen) { OnEnd(std::move(seen), peers, now, effects); },
                        [&](LeaveSeen& seen) { OnLeave(std::move(seen), now); },
                        [&](EvidenceRead& read) { OnEvidence(std::move(read)); },
                        [&](DumpsRead& read) { OnDumps(read.places); }, [](TimePassed&) {}},
             event);
  Release(peers, now, effects);
  return effects;
}

std::optional<TimePoint> Autopsy::NextDeadline() const {
  if (dumps_until_.has_value()) return dumps_until_;
  if (peers_until_.has_value()) return peers_until_;
  return waiting_.empty() ? std::nullopt : waiting_.front().deadline;
}

// ---- Events

void Autopsy::NoteGone(int local_rank, const std::optional<ProgressMessage>& message,
                       TimePoint now) {
  if (message.has_value()) places_.OnProgress(local_rank, *message, now);
  places_.OnExit(local_rank);
}

void Autopsy::OnEnd(EndSeen seen, const Peers& peers, TimePoint now, Effects& effects) {
  WorkerEnded& ended = seen.ended;
  NoteGone(ended.local_rank, seen.message, now);
  Waiting& waiting = waiting_.emplace_back();
  waiting.end = seen.question.end = ++last_end_;
  if (IsSuccess(ended.outcome)) {
    ended.places = places_.PlaceOf(ended.local_rank, rank_first_);
    waiting.event = std::move(ended);
    return;
  }
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  if (!ended.stopped) {
    ended.places = places_.Places(rank_first_);
    // Gloo ends the process where a message has another length than is expected.
    const bool in_collective = (signaled != nullptr && signaled->signal == SIGABRT) ||
                               places_.WaitsInCollective(ended.local_rank);
    if (seen.watches_collectives && in_collective && !peers.stopping)
      LetPeersSpeak(peers, now, effects);
    if (!peers.stopping) ReadDumps(ended.local_rank, now, effects);
  }
  if (signaled == nullptr || !signaled->core_dumped || core_folder_hangs_)
    seen.question.core_of_start.reset();
  if (signaled != nullptr) seen.question.signal = signaled->signal;
  effects.emplace_back(std::move(seen.question));
  // It had failed before this agent's signal ended it: the exit code of a program that fails by
  // itself.
  if (signaled != nullptr && seen.was_failing) ended.outcome = Exited{1};
  waiting.deadline = now + kDiskAnswerTimeout;
  waiting.event = std::move(ended);
}

// Those that can be kept do not end because of it.
void Autopsy::LetPeersSpeak(const Peers& peers, TimePoint now, Effects& effects) {
  if (peers.any_can_be_kept) return;
  if (!peers_until_.has_value()) {
    peers_limit_ = now + kPeersSpeakMax;
    effects.emplace_back(AskPlaces{});
  }
  peers_until_ = std::min(now + kPeersSpeakTimeout, peers_limit_);
}

// NCCL's watchdog dumps before it aborts, and the program's own end may follow a dump too.
void Autopsy::ReadDumps(int local_rank, TimePoint now, Effects& effects) {
  if (dumps_until_.has_value()) return;
  const std::vector<int> missing = places_.WithoutPlace();
  if (std::find(missing.begin(), missing.end(), local_rank) == missing.end()) return;
  effects.emplace_back(ReadFlightDumps{missing, local_rank});
  dumps_until_ = now + kPeersSpeakMax + kDiskAnswerTimeout;
}

void Autopsy::OnLeave(LeaveSeen seen, TimePoint now) {
  NoteGone(seen.left.local_rank, seen.message, now);
  seen.left.places = places_.Places(rank_first_);
  Waiting& waiting = waiting_.emplace_back();
  waiting.end = ++last_end_;
  waiting.event = std::move(seen.left);
}

// Too late where the report did not wait for it.
void Autopsy::OnEvidence(EvidenceRead read) {
  for (Waiting& waiting : waiting_) {
    if (waiting.end == read.end) waiting.evidence = std::move(read.evidence);
  }
}

void Autopsy::OnDumps(const DumpedPlaces& places) {
  if (!dumps_until_.has_value()) return;
  dumps_until_.reset();
  for (const auto& [local_rank, place] : places) places_.SetDumped(local_rank, place);
  if (!places.empty()) UpdatePlaces();
}

// ---- Reports

// All failures that are held get what is known now.
void Autopsy::UpdatePlaces() {
  for (Waiting& waiting : waiting_) {
    auto* ended = std::get_if<WorkerEnded>(&waiting.event);
    if (ended != nullptr && !ended->stopped && !IsSuccess(ended->outcome))
      ended->places = places_.Places(rank_first_);
  }
}

void Autopsy::Release(const Peers& peers, TimePoint now, Effects& effects) {
  const auto holds = [&](std::optional<TimePoint> until) { return !peers.stopping && now < until; };
  if (dumps_until_.has_value()) {
    if (holds(dumps_until_)) return;
    dumps_until_.reset();
  }
  if (peers_until_.has_value()) {
    if (peers.any_runs && holds(peers_until_)) return;
    peers_until_.reset();
    UpdatePlaces();
  }
  while (!waiting_.empty()) {
    const Waiting& front = waiting_.front();
    const bool is_complete = !front.deadline.has_value() || front.evidence.has_value();
    if (!is_complete && now < *front.deadline) return;
    ReleaseFront(effects);
  }
}

void Autopsy::ReleaseFront(Effects& effects) {
  Waiting front = std::move(waiting_.front());
  waiting_.pop_front();
  if (front.evidence.has_value()) {
    auto& ended = std::get<WorkerEnded>(front.event);
    ended.message = PrintableLines(front.evidence->record.message);
    ended.traceback = PrintableLines(front.evidence->record.traceback);
    ended.core_file = Printable(front.evidence->core_file);  // may contain the program's name
    ended.evidence = std::move(front.evidence->machine);
    effects.emplace_back(KeepRecord{ended.local_rank, std::move(front.evidence->record_bytes)});
  } else if (front.deadline.has_value()) {
    core_folder_hangs_ = true;
  }
  effects.emplace_back(ReportEvent{std::move(front.event)});
}

}  // namespace ddprun
