// SPDX-License-Identifier: Apache-2.0
// Core: the watchers of a run, and how its workers' lines get from the nodes to them. Pure: events
// in, directives and news out; no clock.
//
// A slow reader never blocks a node. A node has at most kLogWindowBytes in flight for each watch;
// lines are acknowledged when they have left the reader's queue here. Lines that arrive at a full
// queue are dropped and counted; they are acknowledged when the reader takes the count, so that a
// node does not keep sending lines that will be dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/membership/membership.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// What a watcher subscribes to.
struct RunQuestion {
  bool output = false;  // of workers; `watch` says which and how much
  LogWatch watch;
  std::vector<std::string> nodes;  // their node ranks, hosts or node ids; none: all
  bool events = false;             // RunEventLine in place of RunWords, with those that are kept
  bool operator==(const RunQuestion&) const = default;
};

// The first news.
struct WatchBegun {
  std::string run_id;
  std::vector<std::string> nodes;  // that are asked for output
  std::vector<std::string> away;   // that cannot be asked now
  bool operator==(const WatchBegun&) const = default;
};
struct WorkerLines {
  std::string node;
  int node_rank = -1;
  LogLines lines;
  bool operator==(const WorkerLines&) const = default;
};
// A line of JSON (run_event.h), without its line end.
struct RunEventLine {
  std::string json;
  bool operator==(const RunEventLine&) const = default;
};
struct RunWords {
  std::string text;
  bool operator==(const RunWords&) const = default;
};
// The lines from before the subscription have arrived from all connected nodes.
struct TailsEnd {
  bool operator==(const TailsEnd&) const = default;
};
struct RunOver {
  std::optional<Verdict> verdict;
  bool operator==(const RunOver&) const = default;
};
using RunNews = std::variant<WatchBegun, WorkerLines, RunWords, TailsEnd, RunOver, RunEventLine>;

enum class WatchId : std::uint64_t {};

class LogSubscriptions {
 public:
  struct Effects {
    std::vector<std::pair<LinkId, Directive>> directives;
    std::vector<WatchId> awake;  // have news to take
  };
  // What a reader takes next.
  struct Taken {
    std::optional<RunNews> news;  // absent: none now
    bool over = false;            // and none later
    Effects effects;
  };

  bool empty() const { return watches_.empty(); }
  std::size_t size() const { return watches_.size(); }

  // `events`: those that are kept, for a watcher that asks for them.
  WatchId Open(const RunState& run, RunQuestion question, std::vector<std::string> events,
               Effects& effects);
  Effects Close(const RunState& run, WatchId id);

  // The node has joined, reconnected, has another rank, or is away or lost: its lines are then not
  // waited for.
  Effects Update(const RunState& run, const NodeId& id);
  Effects Receive(const RunState& run, LinkId link, LogLines lines);
  // An event: its sentence (empty: none for watchers of output), and its line of JSON.
  Effects Report(const std::string& sentence, const std::string& json);
  Effects Finish(const std::optional<Verdict>& verdict);

  Taken Take(const RunState& run, WatchId id);

 private:
  // What one node has sent for one watch.
  struct Progress {
    std::optional<LinkId> told;  // the link on which the node was last sent the watch
    bool tail_ended = false;
    std::uint64_t received = 0;
    std::uint64_t dropped = 0;  // lines, since the last ones in the queue
    std::uint64_t dropped_number = 0;
  };
  struct Queued {
    RunNews news;
    std::size_t bytes = 0;
    NodeId node;  // of lines
  };
  struct Watch {
    RunQuestion question;
    std::map<NodeId, Progress> progress;
    std::deque<Queued> queue;
    std::size_t bytes = 0;
    bool tails_ended = false;
    bool over = false;
  };

  static bool Wants(const Watch& watch, const Member& node);
  static std::size_t BytesOf(const LogLines& lines);
  void Notify(const Member& node, bool always, Effects& effects);
  void EndTails(const RunState& run, std::uint64_t id, Watch& watch, Effects& effects);
  void Put(std::uint64_t id, Watch& watch, Queued queued, Effects& effects);
  void PutEvent(std::uint64_t id, Watch& watch, std::string json, Effects& effects);
  void Acknowledge(const RunState& run, std::uint64_t id, const NodeId& node, std::uint64_t number,
                   Effects& effects);
  std::optional<RunNews> TakeDropped(const RunState& run, std::uint64_t id, Watch& watch,
                                     Effects& effects);

  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Watch> watches_;
};

// Whether `name` means the node.
bool IsNamed(const Member& node, const std::string& name);

}  // namespace ddprun
