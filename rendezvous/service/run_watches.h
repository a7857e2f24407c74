// SPDX-License-Identifier: Apache-2.0
// The watchers of one run (ddpctl), and what the run's nodes are sent for them. Without a lock: the
// run calls it under its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/observe/event_history.h"
#include "rendezvous/observe/log_subscriptions.h"
#include "rendezvous/service/stream_sinks.h"

namespace ddprun {

class RunWatches {
 public:
  struct Effects {
    std::vector<SendDirective> directives;
    std::vector<std::shared_ptr<NewsSink>> awake;     // have news to take
    std::vector<std::shared_ptr<NewsSink>> replaced;  // newer watches have evicted these
  };

  // Above the limit the oldest watch of the address with the most watches is evicted. `from`: the
  // new watcher's address. NOT_FOUND: no such node.
  absl::StatusOr<WatchId> Open(const RunState& run, std::shared_ptr<NewsSink> sink,
                               const RunQuestion& question, const std::string& from,
                               Effects& effects);
  Effects Close(const RunState& run, WatchId id);
  // Absent: there is none now; with `over`, there will be none.
  std::optional<RunNews> Take(const RunState& run, WatchId id, bool& over, Effects& effects);

  // Lines of a node's workers.
  Effects Receive(const RunState& run, LinkId link, LogLines lines);
  Effects Hear(const RunState& run, const RunNotice& note, EventTime time);
  // There will be no more news. Does nothing the second time.
  Effects Finish(const RunState& run);

 private:
  struct Watcher {
    std::shared_ptr<NewsSink> sink;
    std::string from;     // its address
    bool output = false;  // also watches the output of workers
  };

  void MakeRoom(const RunState& run, bool output, Effects& effects);
  void Add(LogSubscriptions::Effects from, Effects& effects);

  EventHistory history_;
  LogSubscriptions subscriptions_;
  std::map<WatchId, Watcher> watchers_;
};

}  // namespace ddprun
