// SPDX-License-Identifier: Apache-2.0
// Watches a run of a service, without gRPC types. The caller need not be a node.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/observe/log_subscriptions.h"

namespace ddprun {

class RunWatch {
 public:
  // Does not block. `run_id` empty: the only run.
  static std::unique_ptr<RunWatch> Open(std::shared_ptr<ServiceChannel> channel,
                                        const std::string& run_id, const RunQuestion& question);
  virtual ~RunWatch() = default;

  // The next event; absent: none arrived until then. One message is read at a time, so a caller
  // that takes none only fills its own queue in the service. OUT_OF_RANGE: there are no more. Other
  // errors are whole sentences: those of Control.WatchRun and of an unreached service (as of
  // GetStatus()), and UNAVAILABLE if the connection broke.
  virtual absl::StatusOr<std::optional<RunNews>> Next(TimePoint until) = 0;
};

}  // namespace ddprun
