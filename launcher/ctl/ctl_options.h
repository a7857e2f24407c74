// SPDX-License-Identifier: Apache-2.0
// The command line of ddpctl, and of `ddprun status`, which is one of its commands. Pure, as
// options.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/base/limits.h"
#include "launcher/options/options.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// A rendezvous service: on the network, or a ddprun-rendezvous of this machine at a socket.
struct ServiceAddress {
  Endpoint endpoint;   // if `socket` is empty
  std::string socket;  // a path
};

// For ServiceChannel and for messages: "HOST:PORT" or "unix:PATH".
std::string TargetOf(const ServiceAddress& service);
// The same text, as an address. INVALID_ARGUMENT: it is none.
absl::StatusOr<ServiceAddress> ParseService(const std::string& text);

// Options of ddpctl chaos.
struct ChaosOptions {
  std::chrono::milliseconds every = kChaosIntervalDefault;
  std::chrono::milliseconds time{0};  // 0: without an end of its own
  int count = 0;                      // likewise
  std::vector<FaultKind> kinds;
  std::chrono::milliseconds duration{0};  // of faults that last; 0: that of each kind
  std::optional<int> seed;                // absent: a random one
  bool yes = false;
  std::string report;  // a file; empty: none
};

struct CtlOptions {
  enum class Command {
    kStatus,
    kStop,
    kDrain,
    kPromote,
    kLogs,
    kStacks,
    kChaos,
    kAttach,
    kRuns,
    kEvents,
    kWhy,
    kTop,
    kWeb,
    kCapsule,
    kReplay,
  };
  Command command = Command::kStop;
  // Neither endpoint nor socket: that of a detached run of this user (runs/run_folder.h).
  ServiceAddress service;
  // Empty: all runs (status), or the only one. Of a detached run: its name or its run id; empty:
  // the newest.
  std::string run_id;
  std::chrono::milliseconds timeout = kStatusTimeoutDefault;
  SecurityOptions security;

  // For status, runs, events, why and replay.
  bool json = false;
  bool refresh = false;  // --watch, and of top
  std::chrono::milliseconds interval = kWatchIntervalDefault;

  // For stop.
  bool now = false;
  bool wait = false;
  std::chrono::milliseconds wait_timeout = kStopWaitDefault;

  // For logs.
  LogWatch watch{.lines = kLogsLinesDefault};
  std::vector<std::string> nodes;  // empty: all

  // For events, with `watch.follow`.
  int last_events = 0;  // 0: all

  // For why.
  std::string verdict_file;  // of --verdict-file; empty: the run is asked for

  // For web: a file; empty: the page is served. For capsule: likewise, empty: NAME.tar.gz. For
  // replay: of the scenario.
  std::string save;

  // For replay, and `rank`.
  std::chrono::milliseconds until{0};  // since the record's begin; 0: to its end

  // For web.
  int port = 0;  // 0: one that is free
  bool web_control = false;
  std::vector<std::string> compare;  // runs whose curves are drawn beside

  // For attach.
  bool whole = false;   // from the first line that is kept
  std::string host;     // where the run is; empty: here
  std::string rsh;      // empty: ssh
  bool serves = false;  // as the other end (runs/attach_stream.h)

  // For stacks and replay.
  std::optional<int> rank;  // absent: all

  // For drain, and with `force` alone for promote, whose node is `service`.
  std::string node;
  bool force = false;
  bool at_next_round = false;
  bool dry_run = false;

  ChaosOptions chaos;
};

// `ddprun status`, for its help, completion and manual page.
std::vector<Flag> StatusFlags();

// `arguments` from the command's name on. INVALID_ARGUMENT: one sentence for people.
absl::StatusOr<std::variant<CtlOptions, ShowText>> ParseCtlOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable);

}  // namespace ddprun
