// SPDX-License-Identifier: Apache-2.0
// How a worker is kept when a round breaks, instead of being stopped and started anew. Agent and
// worker exchange datagrams with KEY=VALUE lines, so that any language can take part
// (worker/python/ddprun/round_client.py is a client in Python).
//
// The worker sends, to DDPRUN_NOTIFY_SOCKET (progress_message.h has the other keys of that socket):
//   KEEP=1      it can be kept; it has bound a datagram socket to RoundSocketPath() and reads it
//   LEFT=7      it will not communicate in round 7 any more, and waits for another round
//   ERROR=text  with LEFT: it has left by itself, since a collective failed; the round breaks
// The agent sends, to RoundSocketPath():
//   BROKEN=7    round 7 is over: leave it and answer LEFT=7. A worker that does not answer within
//               the grace period of a stopping worker is killed.
//   ROUND=8     round 8 begins. The lines after it are the variables that a worker started for it
//               would find in its environment.
// A worker with DDPRUN_PARKED=1 in its environment has no rank yet. It loads what it needs, sends
// KEEP=1, and waits for its first ROUND.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker_env.h"

namespace ddprun {

inline constexpr char kParkedVariable[] = "DDPRUN_PARKED";

// The agent does not send longer messages.
inline constexpr std::size_t kRoundMessageBytesMax = 16384;

// Where a worker that can be kept reads, given its DDPRUN_NOTIFY_SOCKET.
std::string RoundSocketPath(const std::string& notify_socket);

struct RoundBroken {
  std::uint64_t round = 0;
  bool operator==(const RoundBroken&) const = default;
};

struct RoundBegins {
  std::uint64_t round = 0;
  std::vector<std::pair<std::string, std::string>> variables;
  bool operator==(const RoundBegins&) const = default;
};

using RoundMessage = std::variant<RoundBroken, RoundBegins>;

// A line end in a variable's value is sent as a space.
std::string ToText(const RoundMessage& message);

// Absent: it is neither.
std::optional<RoundMessage> ParseRoundMessage(std::string_view text);

// The environment of a worker in that round: FromEnviron() over its variables.
absl::StatusOr<WorkerEnv> EnvOf(const RoundBegins& begins);

}  // namespace ddprun
