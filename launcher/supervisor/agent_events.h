// SPDX-License-Identifier: Apache-2.0
// Converts events of the supervisor to entries of the agent's event log. Pure.
#pragma once

#include <optional>

#include "launcher/supervisor/supervisor.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {

// `state`: before the event. Absent: the event is not logged.
std::optional<RunEvent> EventOf(const Event& event, const SupervisorState& state);

// A worker of `start` was started, or could not be (pid 0).
RunEvent WorkerStarted(const Start& start, int local_rank, std::int64_t pid);

// A fault was injected on purpose, into a worker of `start` or (null) the agent.
RunEvent FaultInjected(const Start* start, int local_rank, const std::string& words);

// The last event of the log.
RunEvent AgentEnded(int exit_code);

}  // namespace ddprun
