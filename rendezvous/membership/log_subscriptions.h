// SPDX-License-Identifier: Apache-2.0
// Core: who watches a run, and how its workers' lines get from the nodes to them. Pure: events in,
// directives and news out; no clock.
//
// Nobody is held up by a reader who is slow. A node has no more than kLogWindowBytes under way for
// each; it is told that lines are taken when they have left the reader's queue here. What comes to
// a full queue is left out and counted, and taken only then as well, so that a node does not go on
// sending what nobody will see.
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

// What somebody wants to hear of a run.
struct RunQuestion {
  bool output = false;  // of workers: which, and how much, is in `watch`
  LogWatch watch;
  std::vector<std::string> nodes;  // their node ranks, hosts or node ids; none: all
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
struct RunWords {
  std::string text;
  bool operator==(const RunWords&) const = default;
};
// What was said before somebody asked has come from all nodes that can be asked.
struct TailsEnd {
  bool operator==(const TailsEnd&) const = default;
};
struct RunOver {
  std::optional<Verdict> verdict;
  bool operator==(const RunOver&) const = default;
};
using RunNews = std::variant<WatchBegun, WorkerLines, RunWords, TailsEnd, RunOver>;

enum class WatchId : std::uint64_t {};

class LogSubscriptions {
 public:
  struct Node {
    NodeId id;
    std::string host;
    std::optional<int> rank;
    std::optional<LinkId> link;  // absent: away
  };
  struct Effects {
    std::vector<std::pair<LinkId, Directive>> directives;
    std::vector<WatchId> awake;  // have something to take
  };
  // What a reader takes next.
  struct Taken {
    std::optional<RunNews> news;  // absent: there is none now
    bool over = false;            // nor will there be any
    Effects effects;
  };

  bool empty() const { return watches_.empty(); }
  std::size_t size() const { return watches_.size(); }

  // `nodes`: of the run, all of them. Nothing is known of nodes while nobody watches.
  WatchId Open(const std::string& run_id, RunQuestion question, const std::vector<Node>& nodes,
               Effects& effects);
  Effects Close(WatchId id);

  // A node has come, has come back on another link, or has another rank.
  Effects Here(const Node& node);
  // It is away or lost; nobody waits for its lines.
  Effects Gone(const NodeId& node);
  Effects Receive(LinkId link, LogLines lines);
  Effects Report(const std::string& sentence);
  Effects Finish(const std::optional<Verdict>& verdict);

  Taken Take(WatchId id);

 private:
  // What a node has said for a watch.
  struct Progress {
    bool told = false;  // of the watch, on the link that the node has now
    bool ever_told = false;
    bool tail_ended = false;
    std::uint64_t received = 0;
    std::uint64_t dropped = 0;  // lines, since the last that are in the queue
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

  static bool Wants(const Watch& watch, const Node& node);
  static std::size_t BytesOf(const LogLines& lines);
  void Notify(const Node& node, bool always, Effects& effects);
  void EndTails(std::uint64_t id, Watch& watch, Effects& effects);
  void Put(std::uint64_t id, Watch& watch, Queued queued, Effects& effects);
  void Acknowledge(std::uint64_t id, const NodeId& node, std::uint64_t number, Effects& effects);
  std::optional<RunNews> TakeDropped(std::uint64_t id, Watch& watch, Effects& effects);

  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Watch> watches_;
  std::map<NodeId, Node> nodes_;
  std::map<LinkId, NodeId> links_;
};

// For people: "b (node rank 1)".
std::string NameOf(const LogSubscriptions::Node& node);
// Whether `name` means the node.
bool IsNamed(const LogSubscriptions::Node& node, const std::string& name);

}  // namespace ddprun
