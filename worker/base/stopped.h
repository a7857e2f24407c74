// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace ddprun {

// The training was asked to end by a signal, has saved what it could, and ends: one sentence. The
// program's exit code is 128 + signal, as a shell would show it.
struct Stopped : std::runtime_error {
  Stopped(int by, const std::string& sentence) : std::runtime_error(sentence), signal(by) {}
  int signal;
};

}  // namespace ddprun
