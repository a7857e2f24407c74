// SPDX-License-Identifier: Apache-2.0
// What must hold of what follows a failure: counts for itself, from the rounds that it has seen,
// and judges each restart, each end of a run and each node that is left out by that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

class RestartInvariants {
 public:
  struct Step {
    std::uint64_t run = 0;
    const RunState& before;
    const std::vector<MembershipEffect>& effects;
    const RunState& after;
    TimePoint now;
  };

  // The sentence of what does not hold, or nothing.
  std::string Stepped(const Step& step);
  // The service came back, with the run in this state.
  void Recovered(std::uint64_t run, const RunState& state);
  bool IsLeftOut(std::uint64_t run, const std::string& host, TimePoint now) const;

 private:
  struct Round {
    TimePoint sealed{};
    std::int64_t step = -1;  // the furthest that was reported in it
    TimePoint broke{};
    TimePoint restarted{};
    std::optional<Failure> cause;  // once another round has followed
  };
  struct Run {
    std::map<RoundId, Round> rounds;
    std::map<std::string, TimePoint> forgiven;  // by host: what it did before does not count
    std::map<std::string, TimePoint> left_out;
    RestartPolicy policy;
  };

  std::string JudgeRestart(const Step& step, Run& run, RoundId ended);
  std::string JudgeEnd(const Step& step, const Run& run) const;
  std::string JudgeJoins(const Step& step, Run& run) const;
  std::string JudgeStarts(const Step& step, const Run& run) const;

  static std::optional<std::string> WhyNot(const RunState& state, const Run& run, RoundId ended,
                                           const Failure& cause);
  static bool GivesBack(const Run& run, RoundId round);
  static bool GotFurther(const Run& run, RoundId round);
  static int Counted(const Run& run, RoundId upto, TimePoint at);
  static int FailuresOf(const Run& run, const std::string& host, RoundId upto, TimePoint at);

  std::map<std::uint64_t, Run> runs_;
};

}  // namespace ddprun
