// SPDX-License-Identifier: Apache-2.0
// The command line of `ddprun status`. Pure, as options.h.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/ctl/service_flags.h"
#include "launcher/options/options.h"

namespace ddprun {

struct StatusOptions {
  ServiceAddress service;
  std::string run_id;  // empty: all runs
  bool json = false;
  bool watch = false;
  std::chrono::milliseconds interval{0};
  std::chrono::milliseconds timeout{0};
  SecurityOptions security;
};

std::vector<Flag> StatusFlags();

// `arguments` after "status". INVALID_ARGUMENT: one sentence for
// people.
absl::StatusOr<std::variant<StatusOptions, ShowText>> ParseStatusOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable);

}  // namespace ddprun
