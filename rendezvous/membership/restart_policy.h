// SPDX-License-Identifier: Apache-2.0
// Whether a run goes on after a failure, when, and without whom: pure functions of what all nodes
// agreed on, of what has happened so far, and of time. The membership core keeps the history and
// acts on the answers; so all nodes hear one decision, and a journal replays it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// What the nodes of one host have done to a run. By host and not by agent, since an agent that is
// started again is another one on the same machine.
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

// That a node leaves as it was asked to is none: the next round follows, and nothing is counted.
inline bool IsFailure(const Failure& cause) { return cause.kind != FailureKind::kNodeDrained; }

// ---- The budget

// A worker has reported that it is at this step.
void Progressed(RestartHistory& history, std::int64_t step);

// A round broke for this after its workers had run that long.
void EndRound(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
              Duration ran);

// How many restarts count at that time.
int RestartsUsed(const RestartHistory& history, const RestartPolicy& policy, TimePoint now);

// Absent: this failure is worth a restart and there is one left. Otherwise why not, in words; none
// where the number of restarts says it all.
std::optional<std::string> WhyNoRestart(const RestartHistory& history, const RestartPolicy& policy,
                                        int restarts_max, const Failure& cause, TimePoint now);

// A failure at that time is answered with a restart.
void CountRestart(RestartHistory& history, const RestartPolicy& policy, TimePoint now);

// Between the last worker's end and the next round, once the restart is counted.
std::chrono::milliseconds RestartDelay(const RestartHistory& history, const RestartPolicy& policy);

// ---- Nodes that fail again and again

// This failure would be its host's last.
bool WouldLeaveOut(const RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                   TimePoint now);

// Counts the failure, which broke a round at that time, as its host's. True: the host is left out
// from now on.
bool CountFailure(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                  TimePoint broke, TimePoint now);

// Absent: its nodes may join.
const HostFailures* FindLeftOut(const RestartHistory& history, const RestartPolicy& policy,
                                const std::string& host, TimePoint now);

// A node of this host is in the run again: what it did before it was left out is forgotten.
void ForgiveLeftOut(RestartHistory& history, const std::string& host);

// "node b is left out after 3 failures (--node-failures-max 3)".
std::string LeftOutWords(const RestartPolicy& policy, const std::string& host);

// ---- As people write them

// "2,77-80,SIGSEGV"; "none" of no code.
std::string ToText(const std::vector<ExitCodeRange>& codes);

// The flag that `a` and `b` disagree about, as each was written ("--restart-window 60", "no
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
