// SPDX-License-Identifier: Apache-2.0
// What the head of a run does when something happens: it starts a node on each host, lets them
// begin when all are there, passes signals on, and ends when all have ended. A pure function of
// state, event and time, without I/O, clock, lock or log. The diagram is in HOSTS.md.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/hosts/hosts_plan.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct HeadConfig {
  HostsPlan plan;
  std::chrono::milliseconds join_timeout{0};  // for all hosts to be there
  std::chrono::milliseconds term_timeout{0};  // that the nodes' workers have
  // Of the first host that takes part, where ssh does not say: as this machine knows it.
  std::vector<std::string> addresses;  // by host; empty: not known
};

// ---- Events

struct HeadBegins {};

// A node sent a message.
struct MessageReceived {
  int node = 0;
  NodeMessage message;
};

// A line of output that is not a worker's: of ddprun on the node, or of its transport (ssh).
struct LineReceived {
  int node = 0;
  std::string line;
};

// The process of a transport ended, and all of its output has been read.
struct TransportEnded {
  int transport = 0;
  Outcome outcome;
};

struct HeadSignaled {
  int signal = 0;
  bool ends = true;  // else it is the workers' and changes nothing here
};

struct HeadDeadlinePassed {};

using HeadEvent = std::variant<HeadBegins, MessageReceived, LineReceived, TransportEnded,
                               HeadSignaled, HeadDeadlinePassed>;

// ---- Effects

// Starts the transport's command number `attempt`.
struct StartTransport {
  int transport = 0;
  int attempt = 0;
};
struct SendSetup {
  int transport = 0;
};
struct SendGo {
  int transport = 0;
  Go go;
};
struct SendSignal {
  int transport = 0;
  int signal = 0;
};
// Its nodes see the end of their stdin, and stop.
struct CloseControlPipe {
  int transport = 0;
};
struct EndTransport {
  int transport = 0;
  int signal = 0;  // SIGTERM or SIGKILL, to the process that carries it
};
// A whole line for stderr.
struct ShowLine {
  std::string line;
};
// The last effect. `text` is shown as it is, if there is any.
struct EndHead {
  int exit_code = 0;
  std::string text;
};

using HeadEffect = std::variant<StartTransport, SendSetup, SendGo, SendSignal, CloseControlPipe,
                                EndTransport, ShowLine, EndHead>;
using HeadEffects = std::vector<HeadEffect>;

// ---- State

enum class NodePhase {
  kWaiting,   // its turn to be started has not come
  kStarting,  // no message of it yet
  kReady,     // its ddprun is there and waits
  kRunning,   // it was ordered to start
  kEnded,
};

enum class HeadPhase {
  kGathering,  // until all hosts are there
  kMeeting,    // the first node opens the service
  kRunning,
  kStopping,  // the run cannot go on: nodes are asked, then cut off, then killed
  kEnded,
};

struct HeadNode {
  NodePhase phase = NodePhase::kWaiting;
  std::optional<Hello> hello;
  std::optional<int> node_rank;
  bool dismissed = false;         // the run has no use for it
  std::deque<std::string> words;  // before its Hello: the transport's output
  bool joined = false;
  std::optional<std::string> verdict;
  bool stopped_by_head = false;      // it was ordered to stop before its verdict came
  std::optional<Finished> finished;  // it reported the end of a run that succeeded
  std::optional<Outcome> outcome;
  std::string sentence;  // why it did not take part, or was lost; else empty
};

struct HeadState {
  HeadPhase phase = HeadPhase::kGathering;
  std::vector<HeadNode> nodes;
  std::vector<int> attempts;      // by transport
  std::vector<bool> live;         // by transport: its process runs
  std::optional<int> first_node;  // of those that take part: it has the service
  std::optional<int> first_lost;  // the node that went first without a verdict
  std::optional<int> signal;      // the first that was got
  int signals = 0;
  TimePoint signal_time;
  bool told_to_stop = false;       // the head itself has ordered the nodes to stop
  std::optional<EndHead> failure;  // the head's own verdict: no node has a better one
  std::optional<TimePoint> gather_deadline;
  std::optional<TimePoint> notice_deadline;
  std::optional<TimePoint> stop_deadline;  // the next of the three below is due
  enum class StopStep { kNone, kAskNext, kCloseNext, kKillNext, kLeaveNext } stop = StopStep::kNone;
  struct Note {
    std::map<int, int> heard;  // how often, by node
    int shown = 0;
  };
  std::map<std::string, Note> notes;  // what every node says is shown once
};

HeadEffects StepHead(HeadState& state, const HeadEvent& event, TimePoint now,
                     const HeadConfig& config);

// When StepHead() wants a HeadDeadlinePassed at the latest.
std::optional<TimePoint> NextHeadDeadline(const HeadState& state);

// Where the other nodes reach the first one's service: what the user said; else the address at
// which ssh reached that host; else, where it is this machine, the one that the others saw; else
// its name.
std::string ServiceAddress(const HeadState& state, const HeadConfig& config);

}  // namespace ddprun
