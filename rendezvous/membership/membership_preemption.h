// SPDX-License-Identifier: Apache-2.0
// What the run does about machines that will be taken away. All nodes are told; once the workers of
// all nodes have saved, or when half of the time is over, the nodes with a notice are drained, all
// in one break of the round, if enough nodes stay. A part of the membership core.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/membership/rounds.h"

namespace ddprun {

class Preemptions {
 public:
  Preemptions(MembershipStep& step, Roster& roster, Rounds& rounds)
      : step_(step), state_(step.state), now_(step.now), roster_(roster), rounds_(rounds) {}

  // Members may be gone afterwards.
  void Take(Member& member, const PreemptionReport& report);
  void DrainIfDue();

 private:
  // The members with a notice that can leave, the earliest first, and how many others there are.
  struct Plan {
    std::vector<Member*> going;
    int staying = 0;
    bool succeeded = false;  // the workers of some nodes have ended: the run is about to
  };
  Plan MakePlan() const;
  std::string PlanWords(const Member& member) const;
  void Give(Member& member, const PreemptionReport& report);
  void Withdraw(Member& member);
  void PlanDrain();
  bool AllHaveSaved() const;
  void Drain(const std::vector<Member*>& going);

  MembershipStep& step_;
  RunState& state_;
  const TimePoint now_;
  Roster& roster_;
  Rounds& rounds_;
};

}  // namespace ddprun
