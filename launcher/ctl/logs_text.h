// SPDX-License-Identifier: Apache-2.0
// What `ddpctl logs` prints of the news of a run. Pure: news in, text out.
//
// What was said before it asked comes from all nodes in whatever order, and is held until all of it
// is there: it is shown by round and node. What is said afterwards is shown as it comes. Clocks of
// several hosts are not compared.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/membership/log_subscriptions.h"

namespace ddprun {

class LogsText {
 public:
  // Of `bytes_max` more than that is not held, but shown as it is. To a terminal lines go without
  // control characters, to anything else with every byte but line ends.
  LogsText(bool follow, std::size_t bytes_max, bool terminal = false)
      : follow_(follow), bytes_max_(bytes_max), terminal_(terminal) {}

  // What is to be printed now.
  std::string On(const RunNews& news);

  // Not all nodes have answered in time: what is held, and who has not.
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
  bool waiting_ = true;  // for what was said before
  bool shown_any_ = false;
  std::set<std::string> unanswered_;  // nodes
  std::vector<Held> held_;
  std::size_t held_bytes_ = 0;
  std::string later_;  // what comes after what is held
};

// "run job7 ended with exit code 143: it was stopped by ddpctl from head".
std::string EndSentence(const std::string& run_id, const RunOver& end);

}  // namespace ddprun
