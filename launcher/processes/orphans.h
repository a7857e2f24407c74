// SPDX-License-Identifier: Apache-2.0
// Processes that workers leave behind. A child subreaper inherits every descendant whose parent
// dies, also one in another session, and can therefore kill it.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// This process's children, also those that have ended, by what the kernel says of each of its
// threads. Absent: it does not say it (CONFIG_PROC_CHILDREN), or a thread has ended meanwhile.
std::optional<std::vector<pid_t>> ChildrenByThread();
// The same by the parent of every process of the host, 20 us each.
std::vector<pid_t> ChildrenByParent();

// Orphans from now on become this process's children.
void BecomeSubreaper();

// Kills and reaps all children of this process, and their children once inherited, until none is
// left. SIGCHLD must be blocked in every thread. Returns those that SIGKILL did not end in time:
// they hang in the kernel.
std::vector<pid_t> KillAllChildren(std::chrono::milliseconds timeout);

// One step of KillAllChildren(), without waiting: reaps the children that have ended and sends
// SIGKILL to the others, which it returns. Each of them raises SIGCHLD when it ends. Absent: there
// is no child. Those for which `is_known` is true are left alone, and reaped elsewhere.
std::optional<std::vector<pid_t>> KillChildrenOnce(const std::function<bool(pid_t)>& is_known =
                                                       [](pid_t) { return false; });

// Reaps the children that have ended, and returns the others, but for those for which `is_known` is
// true, which are left alone.
std::vector<pid_t> ReapAndListChildren(const std::function<bool(pid_t)>& is_known);

// Reaps children that have ended, except those for which `is_known` is true, which are reaped
// elsewhere. False: this process has no child, running or ended.
bool ReapOrphans(const std::function<bool(pid_t)>& is_known);

// How the processes that a round's workers left behind are ended: those of workers that ended with
// 0 have a time of grace to end by themselves, then kLeftoverTermTimeout after SIGTERM; all others
// get SIGKILL at once. Pure.
class LeftoverStages {
 public:
  // In the order of time. kGivenUp: SIGKILL does not end them, they hang in the kernel.
  enum class Stage { kGrace, kNoticed, kTerm, kKill, kGivenUp };

  // All workers have ended now. `grace`: absent if one of them failed, or is being stopped.
  LeftoverStages(TimePoint now, std::optional<std::chrono::milliseconds> grace);

  Stage At(TimePoint now) const;
  // The end of that stage, which is not kGivenUp.
  TimePoint EndOf(Stage stage) const { return ends_[static_cast<std::size_t>(stage)]; }

  // What one look at the processes that are left leads to.
  struct Action {
    Stage stage = Stage::kGrace;
    bool is_news = false;        // these processes are to be told of, with the signal that they get
    int signal = 0;              // SIGTERM or SIGKILL, or 0 for none
    std::vector<pid_t> targets;  // that get it now; each gets SIGTERM once
    TimePoint next{};            // of the next look, unless the stage is kGivenUp
  };
  Action OnLook(const std::vector<pid_t>& left, TimePoint now);
  // The workers of the round are told to end: the same holds for what they have left behind.
  void Terminate(TimePoint now);
  void Kill(TimePoint now);

 private:
  void EndBy(Stage stage, TimePoint time);

  std::array<TimePoint, 4> ends_;
  std::optional<Stage> reported_;  // of the last news, or of the first look
  std::set<pid_t> terminated_;
};

}  // namespace ddprun
