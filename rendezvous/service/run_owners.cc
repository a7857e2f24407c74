// SPDX-License-Identifier: Apache-2.0
// Run: whose the connections to the workers' TCPStore are (store/connection_owners.h).
#include <utility>

#include "rendezvous/service/run.h"

namespace ddprun {

void Run::Joined(LinkId link, const Join& join, TimePoint now) {
  Action action(*this);
  StepLocked(NodeJoined{link, join}, ToCores(now), action.afterwards);
  const auto session = sessions_.find(link);
  if (session == sessions_.end() || !membership_.links.contains(link)) return;
  owners_.Add(link, join, session->second->Address());
}

// Only members have a say in who is let in.
void Run::ReceiveQueries(LinkId link, const OwnerQueries& queries, TimePoint now) {
  Action action(*this);
  if (!membership_.links.contains(link)) return;
  PushLocked(owners_.Ask(link, queries, now), action.afterwards);
}

void Run::ReceiveAnswers(LinkId link, const OwnerAnswers& answers, TimePoint now) {
  Action action(*this);
  if (!membership_.links.contains(link)) return;
  PushLocked(owners_.Receive(link, answers, now), action.afterwards);
}

// Not held back for the journal: they follow from no record.
void Run::PushLocked(ConnectionOwners::Directives directives, Afterwards& afterwards) {
  for (SendDirective& send : directives) {
    const auto session = sessions_.find(send.link);
    if (session == sessions_.end()) continue;
    Push(ToSession{session->second, std::move(send.directive)}, afterwards);
  }
  if (!owners_.empty()) afterwards.deadline = NextDeadlineLocked();
}

}  // namespace ddprun
