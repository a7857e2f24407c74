// SPDX-License-Identifier: Apache-2.0
// Flags of `ddprun doctor`, which takes those of a run too. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

struct DoctorOptions {
  std::chrono::milliseconds timeout{0};  // for the other nodes to come
  bool json = false;
  std::string python;    // empty: no Python is asked
  int nodes_wanted = 0;  // of those that -H has started, how many there should be; 0: --nnodes
};

extern const std::vector<Flag> kDoctorFlags;

DoctorOptions ReadDoctorOptions(Reader& reader);

// With `flags` of a run that a person may want to see there.
std::string DoctorHelp(const std::vector<Flag>& flags);

}  // namespace ddprun
