// SPDX-License-Identifier: Apache-2.0
// The state machine of the head of a run: starts a node on each host, lets the run begin when all
// nodes are ready, forwards signals, and ends when all nodes have ended. A pure function of state,
// event and time, without I/O, clock, lock or log. The diagram is in HOSTS.md.
#pragma once

#include <chrono>
#include <csignal>
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
  std::chrono::milliseconds join_timeout{0};  // for all hosts to become ready
  std::chrono::milliseconds term_timeout{0};  // grace period of the nodes' workers
  int stop_signal = SIGTERM;  // that a node is ordered to stop with: it ends the run there
  // By host, for the host of the service if ssh reports no address; an empty string: not known.
  std::vector<std::string> addresses;
};

// ---- Events

struct HeadBegins {};

// A node sent a message.
struct MessageReceived {
  int node = 0;
  NodeMessage message;
};

// A line of output of ddprun on the node or of its transport (ssh), not of a worker.
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
  bool ends = true;  // false: the signal is only forwarded to the workers
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
// Its nodes reach the end of their stdin, and stop.
struct CloseControlPipe {
  int transport = 0;
};
struct EndTransport {
  int transport = 0;
  int signal = 0;  // SIGTERM or SIGKILL, for the transport's process
};
// A whole line for stderr.
struct ShowLine {
  std::string line;
};
// The last effect. `text` is printed unless it is empty.
struct EndHead {
  int exit_code = 0;
  std::string text;
};

using HeadEffect = std::variant<StartTransport, SendSetup, SendGo, SendSignal, CloseControlPipe,
                                EndTransport, ShowLine, EndHead>;
using HeadEffects = std::vector<HeadEffect>;

// ---- State

enum class NodePhase {
  kWaiting,   // not started yet
  kStarting,  // no message received yet
  kReady,     // its Hello was received
  kRunning,   // it was ordered to start
  kEnded,
};

enum class HeadPhase {
  kGathering,  // until all hosts are ready
  kMeeting,    // the first node opens the service
  kRunning,
  kStopping,  // the run cannot continue: SIGTERM, then the end of stdin, then SIGKILL
  kEnded,
};

struct HeadNode {
  NodePhase phase = NodePhase::kWaiting;
  std::optional<Hello> hello;
  std::optional<int> node_rank;
  bool dismissed = false;         // the run begins without it
  std::deque<std::string> words;  // before its Hello: the transport's output
  bool joined = false;
  std::optional<std::string> verdict;
  bool stopped_by_head = false;      // it was ordered to stop before its verdict came
  std::optional<Finished> finished;  // it reported the end of a run that succeeded
  std::optional<Outcome> outcome;
  std::string sentence;  // why it did not join, or was lost; else empty
};

struct HeadState {
  HeadPhase phase = HeadPhase::kGathering;
  std::vector<HeadNode> nodes;
  std::vector<int> attempts;      // by transport
  std::vector<bool> live;         // by transport: its process runs
  std::optional<int> first_node;  // of those that join: it hosts the service
  std::optional<int> first_lost;  // the first node that ended without a verdict
  std::optional<int> signal;      // the first that was received
  int signals = 0;
  TimePoint signal_time;
  bool ordered_to_stop = false;    // the head itself has ordered the nodes to stop
  std::optional<EndHead> failure;  // the head's own verdict, which overrides those of nodes
  std::optional<TimePoint> gather_deadline;
  std::optional<TimePoint> notice_deadline;
  std::optional<TimePoint> stop_deadline;  // the next of the three below is due
  enum class StopStep { kNone, kAskNext, kCloseNext, kKillNext, kLeaveNext } stop = StopStep::kNone;
  struct Note {
    std::map<int, int> heard;  // how often, by node
    int shown = 0;
  };
  std::map<std::string, Note> notes;  // a line that every node prints is shown once
};

HeadEffects StepHead(HeadState& state, const HeadEvent& event, TimePoint now,
                     const HeadConfig& config);

// When StepHead() needs a HeadDeadlinePassed.
std::optional<TimePoint> NextHeadDeadline(const HeadState& state);

// True if other hosts cannot use this name or address for this machine.
bool IsLoopback(const std::string& host);

// The address at which the other nodes reach the service of the first: --master-addr; else the
// address at which ssh reached that host; else, if it is this machine, the one that the other hosts
// saw; else its name.
std::string ServiceAddress(const HeadState& state, const HeadConfig& config);

}  // namespace ddprun
