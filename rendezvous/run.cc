// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/limits.h"
#include "rendezvous/printable.h"

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

absl::StatusOr<StorePeer> Run::OpenStore(std::shared_ptr<ReplySink> sink, const StoreHello& hello) {
  Afterwards afterwards;
  StorePeer peer = kNoPeer;
  {
    absl::MutexLock lock(&mutex_);
    if (!membership_.members.contains(NodeId{hello.node_id})) {
      return absl::PermissionDeniedError(
          absl::StrCat("node '", Printable(hello.node_id.substr(0, kNameBytesMax)),
                       "' asks for the store of run '", run_id_, "' and is not in it"));
    }
    peer = StorePeer{++last_peer_};
    store_streams_.emplace(peer, std::move(sink));
    QueueLocked(store_.Open(peer, hello), afterwards);
  }
  Perform(afterwards);
  return peer;
}

void Run::Receive(StorePeer peer, StoreBatch batch, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    QueueLocked(store_.Receive(peer, std::move(batch), now), afterwards);
  }
  Perform(afterwards);
}

void Run::StoreGone(StorePeer peer, TimePoint now) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    QueueLocked(store_.Gone(peer, now), afterwards);
    store_streams_.erase(peer);
  }
  Perform(afterwards);
}

std::uint64_t Run::store_messages(const NodeId& node_id) {
  absl::MutexLock lock(&mutex_);
  return store_.messages(node_id.value);
}

std::optional<TimePoint> Run::Tick(TimePoint now) {
  Afterwards afterwards;
  std::optional<TimePoint> next;
  {
    absl::MutexLock lock(&mutex_);
    const auto membership_due = NextDeadline(membership_);
    if (membership_due && *membership_due <= now) StepLocked(ddprun::Tick{}, now, afterwards);
    QueueLocked(store_.Tick(now), afterwards);
    next = NextDeadlineLocked();
    store_armed_ = store_.NextDeadline();
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
      QueueLocked(store_.Clear(changed->round), afterwards);
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

void Run::QueueLocked(StoreEffects effects, Afterwards& afterwards) {
  for (StoreEffect& effect : effects) {
    auto* say = std::get_if<StoreSay>(&effect);
    const auto it =
        store_streams_.find(say != nullptr ? say->peer : std::get<StoreEnd>(effect).peer);
    if (it == store_streams_.end()) continue;
    if (say != nullptr) {
      it->second->Push(std::move(say->reply));
    } else {
      it->second->End(std::move(std::get<StoreEnd>(effect).status));
    }
    if (afterwards.replies.empty() || afterwards.replies.back() != it->second) {
      afterwards.replies.push_back(it->second);
    }
  }
  const auto due = store_.NextDeadline();
  if (!due || (store_armed_ && *store_armed_ <= *due)) return;
  store_armed_ = due;
  if (!afterwards.deadline || *due < *afterwards.deadline) afterwards.deadline = due;
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
