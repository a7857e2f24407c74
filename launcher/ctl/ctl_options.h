// SPDX-License-Identifier: Apache-2.0
// The command line of ddpctl, but for `ddpctl status`, which is that of `ddprun status`. Pure, as
// options.h.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/ctl/service_flags.h"
#include "launcher/options/options.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct CtlOptions {
  enum class Command { kStop, kDrain, kLogs };
  Command command = Command::kStop;
  ServiceAddress service;
  std::string run_id;  // empty: the only one
  std::chrono::milliseconds timeout{0};
  SecurityOptions security;
  bool now = false;  // of stop, as are the following
  bool wait = false;
  std::chrono::milliseconds wait_timeout{0};
  LogWatch watch;                  // of logs
  std::vector<std::string> nodes;  // of logs; none: all
  std::string node;                // of drain, as are the following
  bool force = false;
  bool at_next_round = false;
  bool dry_run = false;
};

// INVALID_ARGUMENT: one sentence for people.
absl::StatusOr<std::variant<CtlOptions, ShowText>> ParseCtlOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable);

}  // namespace ddprun
