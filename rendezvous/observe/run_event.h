// SPDX-License-Identifier: Apache-2.0
// What happened in a run, as a line of JSON for programs. Pure. Names and meanings are in
// launcher/README.md and only grow.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

struct RunEvent {
  std::string event;  // "node.joined"
  std::string run_id;
  RoundId round = kNoRound;
  std::string node_id;
  std::string host;
  std::optional<int> node_rank;
  std::optional<int> rank;
  std::string text;  // a sentence for people; empty: none
  // The fields of this kind of event, in this order.
  std::vector<std::pair<std::string, std::variant<std::int64_t, bool, std::string>>> fields;
};

// Receives the events of all runs, for the event log and the metrics.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  // Called under the run's lock, in the order of what happens; must only record it. `run_id`
  // empty: of no run.
  virtual void OnNotice(const std::string& run_id, const RunNotice& note) = 0;
  // Called like OnNotice(), for operations of the store that nodes have sent.
  virtual void OnStoreOperations(const std::string& run_id, std::size_t count) = 0;
  // Called like OnNotice(), before the run's core is stepped with the event.
  virtual void OnStep(const RunState& /*before*/, const MembershipEvent& /*event*/,
                      TimePoint /*now*/) {}
};

// An event of the service, which knows the whole run.
RunEvent EventOf(const std::string& run_id, const RunNotice& note);

// A sentence for people.
std::string SentenceOf(const RunNotice& note);

// A run of many nodes has many of these, and they explain little.
bool IsRoutine(NoticeKind kind);

// Appends the fields of a failure.
void AddFailure(const Failure& failure, RunEvent& event);

// One object, with a line end. `wall` becomes RFC 3339, in UTC; `steady` seconds of the host's
// clock since it was started, to subtract. `number`: of the run's events, where they are counted.
std::string ToJsonLine(const RunEvent& event, std::chrono::system_clock::time_point wall,
                       TimePoint steady, std::optional<std::uint64_t> number = std::nullopt);

}  // namespace ddprun
