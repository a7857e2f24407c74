// SPDX-License-Identifier: Apache-2.0
// How rounds are sealed, broken and followed by others, and how a run ends.
#pragma once

#include <chrono>
#include <vector>

#include "rendezvous/membership/roster.h"

namespace ddprun {

class Rounds {
 public:
  Rounds(MembershipStep& step, Roster& roster)
      : step_(step), state_(step.state), now_(step.now), roster_(roster) {}

  void SealIfReady();
  // Nodes that wait beside a running round prepare, and the next round takes them in. A round whose
  // workers are all kept loses one step when it is broken, so it is broken as soon as a newcomer is
  // ready. Others are broken only where --on-join restart asks for it.
  void Grow();
  void Break(Failure cause);
  // The cause is another one than was sent when the round broke: it is sent again to all.
  void Correct(Failure cause);
  void AdvanceIfStopped();
  // Takes all losses of one step, so that no round is started with a lost node. A run without any
  // node is over, whatever restarts were left: no node waits for a replacement.
  void React(std::vector<Loss> losses);
  void React(const Loss& loss) { React(std::vector<Loss>(1, loss)); }
  // For a reason outside the round: no other round follows.
  void EndRun(Failure cause);
  void CloseWithFailure(Failure cause);
  // Members that are away, or whose streams break before they acknowledged the verdict, may
  // reconnect for it until their lease expires.
  void Close(Verdict verdict);

 private:
  void Seal(std::vector<Member*> chosen);
  void FormNextRound();
  std::chrono::milliseconds CountRestartIfFailed();
  void LeaveOutIfDue();
  void LetLeaversGo();
  bool IsTheCause(const Loss& loss) const;

  MembershipStep& step_;
  RunState& state_;
  const TimePoint now_;
  Roster& roster_;
};

}  // namespace ddprun
