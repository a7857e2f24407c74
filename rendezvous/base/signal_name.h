// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// "SIGKILL"; "signal 77" for a number without a name.
std::string SignalName(int signal);

// With or without SIG, in any case: "SIGTERM", "term". Absent: there is none of that name.
std::optional<int> SignalNumber(const std::string& name);

// The exit code that a shell reports for a process that the signal has ended.
constexpr int ExitCodeOfSignal(int signal) { return 128 + signal; }

}  // namespace ddprun
