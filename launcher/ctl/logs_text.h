// SPDX-License-Identifier: Apache-2.0
// The output of `ddpctl logs` for the events of a run. Pure: events in, text out.
//
// Lines from before the request arrive from the nodes in any order. They are held until all nodes
// have answered, and printed by round and node. Later lines are printed as they come. The clocks of
// several hosts are never compared.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/observe/log_subscriptions.h"

namespace ddprun {

class LogsText {
 public:
  // Holds at most `bytes_max` bytes; beyond that, lines are printed in the order of arrival. A
  // terminal gets lines without control characters, anything else gets every byte but line ends.
  LogsText(bool follow, std::size_t bytes_max, bool terminal = false)
      : follow_(follow), bytes_max_(bytes_max), terminal_(terminal) {}

  // The text to print now.
  std::string On(const RunNews& news);

  // Call if not all nodes have answered in time. The held text, and the nodes that did not answer.
  std::string StopWaiting();

  bool waiting() const { return waiting_; }
  bool shown_any() const { return shown_any_; }

 private:
  struct Held {
    std::uint64_t round = 0;
    int node_rank = 0;
    std::string text;
  };

  std::string OnBegun(const WatchBegun& begun);
  std::string OnLines(const WorkerLines& said);
  std::string Line(const LogLine& line) const;
  std::string Release();

  const bool follow_;
  const std::size_t bytes_max_;
  const bool terminal_;
  bool waiting_ = true;  // for earlier lines
  bool shown_any_ = false;
  std::set<std::string> unanswered_;  // nodes
  std::vector<Held> held_;
  std::size_t held_bytes_ = 0;
  std::string later_;  // to print after the held text
};

// "run job7 ended with exit code 143: it was stopped by ddpctl from head".
std::string EndSentence(const std::string& run_id, const RunOver& end);

}  // namespace ddprun
