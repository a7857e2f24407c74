// SPDX-License-Identifier: Apache-2.0
// How a program of ours ends: one sentence, a failure record for the launcher, an exit code.
#pragma once

#include <exception>
#include <string>

namespace ddprun {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitSignal = 128;  // + its number

// Writes "PROGRAM: SENTENCE" to stderr and the sentence to TORCHELASTIC_ERROR_FILE, if that is set.
// Returns `code`.
int ReportFailure(const std::string& program, const std::string& sentence, int code);

// The same of an exception.
int ReportFailure(const std::string& program, const std::exception_ptr& error);

}  // namespace ddprun
