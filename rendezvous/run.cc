// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/limits.h"

namespace ddprun {

Run::Run(std::string run_id, ArmTimer arm_timer)
    : run_id_(std::move(run_id)),
      arm_timer_(std::move(arm_timer)),
      membership_(MakeRun(run_id_)),
      store_(membership_.round) {}

std::optional<LinkId> Run::Admit(std::shared_ptr<DirectiveSink> sink, bool resume) {
  absl::MutexLock lock(&mutex_);
  // A node that comes back may want the verdict; one that comes new need not wait for those who do
  // not.
  const bool nobody = resume ? membership_.members.empty() : membership_.links.empty();
  if (membership_.phase == RunPhase::kClosed && nobody) return std::nullopt;
  const LinkId link{++last_link_};
  sessions_.emplace(link, std::move(sink));
  return link;
}

void Run::Joined(LinkId link, const Join& join, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    StepLocked(NodeJoined{link, join}, now, afterwards);
  }
  Perform(afterwards);
}

void Run::Reported(LinkId link, const Report& report, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    StepLocked(NodeReported{link, report}, now, afterwards);
  }
  Perform(afterwards);
}

void Run::Gone(LinkId link, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    StepLocked(NodeGone{link}, now, afterwards);
  }
  Perform(afterwards);
}

void Run::Closed(LinkId link) {
  absl::MutexLock lock(&mutex_);
  sessions_.erase(link);
}

bool Run::Lost(const NodeId& node_id, const std::string& reason, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    if (!membership_.members.contains(node_id)) return false;
    StepLocked(NodeLost{node_id, reason}, now, afterwards);
  }
  Perform(afterwards);
  return true;
}

void Run::Submit(const std::shared_ptr<ReplySink>& sink, std::uint64_t id, StoreOp op,
                 TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    auto& waiting = waiting_[sink.get()];
    if (id == 0 || waiting.contains(id) || waiting.size() >= kStreamOpsMax) {
      StoreResult result;
      result.status =
          waiting.size() >= kStreamOpsMax
              ? absl::ResourceExhaustedError(absl::StrCat(
                    "this stream has ", waiting.size(), " unanswered store operations, its limit"))
              : absl::InvalidArgumentError(
                    absl::StrCat("store request id ", id, " is 0 or not answered yet"));
      sink->Push(id, std::move(result));
      afterwards.replies.push_back(sink);
    } else {
      const StoreTicket ticket{++last_ticket_};
      pending_.emplace(ticket, Pending{sink, id});
      waiting.emplace(id, ticket);
      AnswerLocked(store_.Submit(ticket, std::move(op), now), afterwards);
      if (pending_.contains(ticket)) afterwards.deadline = store_.NextDeadline();
    }
  }
  Perform(afterwards);
}

void Run::Cancel(const ReplySink* sink, std::uint64_t id) {
  absl::MutexLock lock(&mutex_);
  const auto of_sink = waiting_.find(sink);
  if (of_sink == waiting_.end()) return;
  const auto it = of_sink->second.find(id);
  if (it == of_sink->second.end()) return;
  store_.Cancel(it->second);
  pending_.erase(it->second);
  of_sink->second.erase(it);
}

void Run::CancelAll(const ReplySink* sink) {
  absl::MutexLock lock(&mutex_);
  const auto of_sink = waiting_.find(sink);
  if (of_sink == waiting_.end()) return;
  for (const auto& [id, ticket] : of_sink->second) {
    store_.Cancel(ticket);
    pending_.erase(ticket);
  }
  waiting_.erase(of_sink);
}

std::optional<TimePoint> Run::Tick(TimePoint now) {
  Afterwards afterwards;
  std::optional<TimePoint> next;
  {
    absl::MutexLock lock(&mutex_);
    const auto membership_due = NextDeadline(membership_);
    if (membership_due && *membership_due <= now) StepLocked(ddprun::Tick{}, now, afterwards);
    AnswerLocked(store_.Tick(now), afterwards);
    next = NextDeadlineLocked();
    afterwards.deadline.reset();
  }
  Perform(afterwards);
  return next;
}

bool Run::ending() {
  absl::MutexLock lock(&mutex_);
  return IsEnding(membership_);
}

bool Run::drained() {
  absl::MutexLock lock(&mutex_);
  return IsDrained(membership_) && sessions_.empty();
}

void Run::StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards) {
  for (MembershipEffect& effect : Step(membership_, event, now)) {
    if (auto* changed = std::get_if<RoundChanged>(&effect)) {
      AnswerLocked(store_.Clear(changed->round), afterwards);
      continue;
    }
    auto* send = std::get_if<SendDirective>(&effect);
    const LinkId link = send != nullptr ? send->link : std::get<EndStream>(effect).link;
    const auto it = sessions_.find(link);
    if (it == sessions_.end()) continue;
    if (send != nullptr) {
      it->second->Push(std::move(send->directive));
    } else {
      it->second->End();
    }
    afterwards.sessions.push_back(it->second);
  }
  afterwards.deadline = NextDeadlineLocked();
}

void Run::AnswerLocked(std::vector<KvStore::Answer> answers, Afterwards& afterwards) {
  for (KvStore::Answer& answer : answers) {
    const auto it = pending_.find(answer.ticket);
    if (it == pending_.end()) continue;
    const auto of_sink = waiting_.find(it->second.sink.get());
    if (of_sink != waiting_.end()) of_sink->second.erase(it->second.id);
    it->second.sink->Push(it->second.id, std::move(answer.result));
    if (afterwards.replies.empty() || afterwards.replies.back() != it->second.sink) {
      afterwards.replies.push_back(std::move(it->second.sink));
    }
    pending_.erase(it);
  }
}

std::optional<TimePoint> Run::NextDeadlineLocked() const {
  const auto of_store = store_.NextDeadline();
  const auto of_membership = NextDeadline(membership_);
  if (!of_store) return of_membership;
  return of_membership ? std::min(*of_store, *of_membership) : *of_store;
}

void Run::Perform(const Afterwards& afterwards) {
  for (const auto& sink : afterwards.sessions) sink->Flush();
  for (const auto& sink : afterwards.replies) sink->Flush();
  if (afterwards.deadline) arm_timer_(*afterwards.deadline);
}

}  // namespace ddprun
