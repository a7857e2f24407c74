// SPDX-License-Identifier: Apache-2.0
// What --notify sends, and in which form each receiver wants it. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/options/notify_target.h"

namespace ddprun {

struct Notification {
  // "started", "broken" (a round ended by a failure), "restarted", "warning" (a slow rank, a notice
  // of preemption, ranks that wait), "alive", "finished", "failed". Several at once: the last of
  // these.
  std::string event;
  std::string run_id;
  std::string host;
  std::string text;              // for people, a sentence a line
  std::optional<int> rank;       // of the failure
  std::optional<int> exit_code;  // of the run
};

// NOTIFY.md documents the JSON, which a program gets on stdin.
std::string BodyOf(const NotifyTarget& target, const Notification& notification,
                   std::chrono::system_clock::time_point time);
const char* ContentTypeOf(const NotifyTarget& target);

}  // namespace ddprun
