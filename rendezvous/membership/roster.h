// SPDX-License-Identifier: Apache-2.0
// The members of a run: they join, reconnect and are removed. What follows from it for the round is
// the caller's (Rounds::React()).
#pragma once

#include <optional>
#include <utility>

#include "rendezvous/membership/membership_step.h"

namespace ddprun {

// A member that was removed.
struct Loss {
  Failure reason;
  bool was_in_round = false;
  bool was_silent_before_the_break = false;
  bool was_dead_before_it_stopped = false;
};

class Roster {
 public:
  explicit Roster(MembershipStep& step) : step_(step), state_(step.state), now_(step.now) {}

  // A node that replaces another one takes its precedence over spares.
  Member& Add(LinkId link, const Join& join, const Member* replaced);
  // The member's new stream; an older one ends.
  void Link(LinkId link, Member& member);
  // Ends its stream. Without a lease the streams of a run's nodes have ended with the run;
  // otherwise a stream ends when the node has the verdict.
  void EndIfOpen(const Member& member);
  void SetPhase(Member& member, MemberPhase phase);
  void SetKept(Member& member, bool can_be_kept);
  // A new node with the rank of one that is away is that machine's next agent, or its replacement:
  // the old one is fenced. Returns the node to remove, and why.
  std::optional<std::pair<NodeId, Failure>> TakePlace(const Join& join);
  Loss Erase(const NodeId& id, Failure reason);
  // Sends the node a verdict of its own: the run continues, or ends for another reason.
  Loss LetGo(const NodeId& id, const Failure& reason);

  bool LeasesAreDue() const { return state_.lease_due && *state_.lease_due <= now_; }
  // Removes the members whose leases are over, the one that fell silent first before the others.
  std::vector<Loss> EndLeases();
  // Once what follows from the losses is done.
  void PlanNextLook();

 private:
  void Enlist(LinkId link, Member& member);
  void Count(MemberPhase phase, int more);
  RankTime TimeOfLost(const Member& member) const;
  TimePoint NextLook() const;
  void ForgiveIfStopped();
  Failure LossOfSilent(const Member& member) const;

  MembershipStep& step_;
  RunState& state_;
  const TimePoint now_;
};

}  // namespace ddprun
