// SPDX-License-Identifier: Apache-2.0
// How a program ends, for one without Main(): one sentence, a failure record for the launcher, an
// exit code.
#pragma once

#include <exception>
#include <string>

namespace ddprun {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitSignal = 128;  // + its number

// Writes "PROGRAM: SENTENCE" to stderr and the sentence to TORCHELASTIC_ERROR_FILE, if that is set.
// Returns `code`. Throws nothing of its own; from any thread.
int ReportFailure(const std::string& program, const std::string& sentence, int code);

// The same of an exception, by Main()'s rules: what() up to its first line's end, and
// kExitUsage of std::invalid_argument, kExitSignal + signal of an end that a signal has asked for,
// else kExitFailure.
int ReportFailure(const std::string& program, const std::exception_ptr& error);

}  // namespace ddprun
