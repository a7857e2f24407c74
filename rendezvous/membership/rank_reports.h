// SPDX-License-Identifier: Apache-2.0
// What nodes report of their ranks while a round runs: their time, where they stand still, and
// which are slow or damage their memory.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/membership/rounds.h"

namespace ddprun {

class RankReports {
 public:
  RankReports(MembershipStep& step, Rounds& rounds)
      : step_(step), state_(step.state), now_(step.now), rounds_(rounds) {}

  // Totals of one agent, which only grow.
  void TakeTime(Member& member, const RankTime& time);
  void TakeHeartbeat(Member& member, const Heartbeat& report);
  // Tells people of a round that stands still, and of nodes that still run long after the others
  // have ended, once it is time.
  void Tell();

 private:
  void TakeStill(Member& member, const std::vector<RanksInPlace>& still);
  void TakeSlowRank(Member& member, const Progress& progress);
  void TakeDamages(Member& member, const Progress& progress);
  void LookForStall();
  void TellLate();
  // On node 0's console, and on those of the nodes that run.
  void TellRanksWait(const std::string& words, bool tells_running);
  // The node leaves for the reason `words`, if the run can go on; `note` says what comes of it.
  void DrainBecause(const char* flag, const std::string& words, bool only_for_spare, Member& member,
                    RunNotice& note);

  MembershipStep& step_;
  RunState& state_;
  const TimePoint now_;
  Rounds& rounds_;
};

}  // namespace ddprun
