// SPDX-License-Identifier: Apache-2.0
// Whether a run restarts after a failure, when, and without which host: pure functions of the
// agreed policy, the history and time. The membership core keeps the history and acts on the
// answers, so all nodes receive one decision, and a journal replays it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// Failures of the nodes of one host. Per host and not per agent, since a restarted agent is another
// agent on the same machine.
struct HostFailures {
  std::vector<TimePoint> times;  // of its failures that count, oldest first
  std::optional<TimePoint> left_out;
  int exit_code = 0;  // of the last one
  bool operator==(const HostFailures&) const = default;
};

struct RestartHistory {
  int used = 0;                  // restarts that count against the budget
  std::vector<TimePoint> times;  // of these, oldest first; with a window only
  // The furthest step that workers reported in this round, and in all rounds before it.
  std::int64_t step = kNoStep;
  std::int64_t step_before = kNoStep;
  int no_progress = 0;  // failed rounds in a row that got no further
  std::map<std::string, HostFailures> hosts;

  static constexpr std::int64_t kNoStep = -1;
  bool operator==(const RestartHistory&) const = default;
};

// A node that is drained or joins is no failure: the next round follows, and nothing is counted.
inline bool IsFailure(const Failure& cause) {
  return cause.kind != FailureKind::kNodeDrained && cause.kind != FailureKind::kNodeJoined;
}

// How a worker ended, or that it never began.
bool IsWorkersEnd(FailureKind kind);

// A person, or what ends a node from outside, has stopped the run.
inline bool IsStopped(const Failure& cause) {
  return cause.kind == FailureKind::kRunStopped || cause.kind == FailureKind::kNodeInterrupted;
}

// ---- The budget

// A worker has reported this step.
void Progressed(RestartHistory& history, std::int64_t step);

// A round broke for this cause after its workers had run for `ran`.
void EndRound(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
              Duration ran);

// Restarts that count at that time.
int RestartsUsed(const RestartHistory& history, const RestartPolicy& policy, TimePoint now);

// Absent: this failure may be answered with a restart. Otherwise the reason; empty where the number
// of restarts explains it.
std::optional<std::string> WhyNoRestart(const RestartHistory& history, const RestartPolicy& policy,
                                        int restarts_max, const Failure& cause, TimePoint now);

// A failure at that time is answered with a restart.
void CountRestart(RestartHistory& history, const RestartPolicy& policy, TimePoint now);

// Between the last worker's end and the next round, once the restart is counted.
std::chrono::milliseconds RestartDelay(const RestartHistory& history, const RestartPolicy& policy);

// ---- Hosts that fail repeatedly

// With this failure its host would be left out.
bool WouldLeaveOut(const RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                   TimePoint now);

// Counts the failure, which broke a round at that time, as its host's. True: the host is left out
// from now on.
bool CountFailure(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                  TimePoint broke, TimePoint now);

// Null: its nodes may join.
const HostFailures* FindLeftOut(const RestartHistory& history, const RestartPolicy& policy,
                                const std::string& host, TimePoint now);

// A node of this host is in the run again: its failures from before it was left out are forgotten.
void ForgiveLeftOut(RestartHistory& history, const std::string& host);

// "node b is left out after 3 failures (--node-failures-max 3)".
std::string LeftOutWords(const RestartPolicy& policy, const std::string& host);

// ---- As written on the command line

// "2,77-80,SIGSEGV"; "none" of no code.
std::string ToText(const std::vector<ExitCodeRange>& codes);
const char* ToText(OnJoin on_join);

// All of its flags, in one order; empty: not given.
struct PolicyFlag {
  const char* flag;
  std::string value;
};
std::vector<PolicyFlag> FlagsOf(const RestartPolicy& policy);

// The flag whose values in `a` and `b` differ, as each was written ("--restart-window 60", "no
// --restart-window"). Absent: they agree.
struct PolicyDifference {
  const char* flag;
  std::string a;
  std::string b;
};
std::optional<PolicyDifference> FindDifference(const RestartPolicy& a, const RestartPolicy& b);

// OK, or INVALID_ARGUMENT: the field that is out of range, as a sentence's end.
absl::Status CheckPolicy(const RestartPolicy& policy, int restarts_max);

}  // namespace ddprun
