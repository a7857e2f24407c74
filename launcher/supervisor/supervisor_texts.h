// SPDX-License-Identifier: Apache-2.0
// The supervisor's sentences for users. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/supervisor/supervisor.h"

namespace ddprun {

std::string InSeconds(std::chrono::milliseconds time);  // "5 s", rounded up
std::string ServiceName(const SupervisorConfig& config);

// Printed at the end, with the exit code.
std::string InterruptedText(const std::string& host, int signal);
std::string LeftText(const Failure& reason, int exit_code);
std::string UnreachedText(const SessionEnded& ended, const SupervisorConfig& config);
std::string LostServiceText(const SessionEnded& ended, const SupervisorConfig& config,
                            bool workers_succeeded);
std::string RoundsOverlapText(const Start& start, RoundId current, const SupervisorConfig& config);

// Notes during the run.
std::string RestartText(const Start& start, const std::optional<Failure>& cause);
std::string NewRoundText(const Start& start, const Failure& cause);
std::string ConnectionLostText(const Reconnecting& event, const SupervisorConfig& config,
                               bool workers_live);

}  // namespace ddprun
