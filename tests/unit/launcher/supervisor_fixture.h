// SPDX-License-Identifier: Apache-2.0
// Events of the supervisor, and a node whose clock the test moves.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <utility>
#include <vector>

#include "launcher/base/limits.h"
#include "launcher/supervisor/supervisor.h"

namespace ddprun {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline Start StartOf(std::uint64_t round, int restart_count = 0) {
  Start start;
  start.round = RoundId{round};
  start.run_id = "run";
  start.node_rank = 1;
  start.node_count = 2;
  start.rank_first = 2;
  start.world_size = 4;
  start.restart_count = restart_count;
  start.restarts_max = 3;
  return start;
}

inline Failure CauseElsewhere() {
  Failure failure;
  failure.rank = 0;
  failure.host = "a";
  failure.exit_code = 9;
  return failure;
}

inline Failure HangElsewhere() {
  Failure failure = CauseElsewhere();
  failure.kind = FailureKind::kWorkerHung;
  failure.hang = Hang{};
  failure.hang->silent = seconds(40);
  return failure;
}

inline WorkerEnded Ended(int local_rank, Outcome outcome) {
  WorkerEnded ended;
  ended.local_rank = local_rank;
  ended.outcome = std::move(outcome);
  ended.pid = 100 + local_rank;
  ended.last_lines = {"last words"};
  return ended;
}

// By this agent.
inline WorkerEnded Stopped(int local_rank) {
  WorkerEnded ended = Ended(local_rank, Signaled{SIGTERM});
  ended.stopped = true;
  return ended;
}

inline Finish FinishOf(bool success, int exit_code) {
  Verdict verdict;
  verdict.success = success;
  verdict.exit_code = exit_code;
  if (!success) verdict.cause = CauseElsewhere();
  return Finish{verdict};
}

// One node with two workers, ranks 2 and 3, and a clock that the test moves.
class SupervisorTest : public ::testing::Test {
 protected:
  Effects Feed(const Event& event) {
    last_ = Step(state_, event, now_, config_);
    all_.insert(all_.end(), last_.begin(), last_.end());
    return last_;
  }
  template <typename T>
  std::vector<T> Of(const Effects& effects) const {
    std::vector<T> found;
    for (const Effect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  template <typename T>
  bool Last() const {
    return !Of<T>(last_).empty();
  }
  template <typename T>
  std::vector<T> Reports() const {
    std::vector<T> found;
    for (const SendReport& send : Of<SendReport>(all_)) {
      if (const T* one = std::get_if<T>(&send.report)) found.push_back(*one);
    }
    return found;
  }
  End TheEnd() const {
    const auto ends = Of<End>(all_);
    EXPECT_EQ(ends.size(), 1u);
    return ends.empty() ? End{-1, ""} : ends.front();
  }
  void Pass(milliseconds time) {
    now_ += time;
    Feed(DeadlinePassed{});
  }

  SupervisorConfig config_{.host = "b",
                           .service = "a:29500",
                           .join_timeout = seconds(5),
                           .shutdown_timeout = seconds(10),
                           .restart_timeout = seconds(4)};
  SupervisorState state_;
  TimePoint now_{seconds(1000)};
  Effects last_;
  Effects all_;
};

}  // namespace ddprun
