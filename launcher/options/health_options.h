// SPDX-License-Identifier: Apache-2.0
// The command line of `ddprun health`, and --health-check builtin, which is one. Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/base/flags.h"
#include "launcher/options/options.h"

namespace ddprun {

// In the order of their functions in doctor/health_rules.cc.
inline constexpr const char* kHealthCheckNames[] = {"gpu", "disk", "clock", "network"};

struct HealthRequest {
  std::vector<std::string> checks;  // of kHealthCheckNames
  int workers = 0;                  // that many of the GPUs are used; 0: all
  std::vector<std::string> gpus;    // as of --gpus; empty: all visible ones
  std::vector<std::string> folders;
};

std::vector<Flag> HealthFlags();

// `arguments` after the command's name.
absl::StatusOr<std::variant<ShowText, HealthRequest>> ParseHealthRequest(
    const std::vector<std::string>& arguments);

// What --health-check runs by sh -c: the command, or for "builtin" and "builtin:NAME,..." that of
// `program`, the path of this ddprun. Empty: none is given.
std::string HealthCommandLine(const Options& options, const std::string& program, int workers);

// INVALID_ARGUMENT: --health-check builtin names a check that does not exist.
absl::Status CheckHealthOptions(const HealthOptions& health);

}  // namespace ddprun
