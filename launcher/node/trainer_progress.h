// SPDX-License-Identifier: Apache-2.0
// Reports rank 0's progress to Kubeflow Trainer, for programs that tell their agent how far they
// are and know nothing of Kubernetes (deploy/kubernetes/FACTS.md has the contract). Requests run on
// threads of their own, one at a time; nothing waits for them but the last one, for a moment.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "launcher/base/background.h"
#include "launcher/base/flags.h"
#include "launcher/node/https_post.h"
#include "proto/progress_message.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// The speed since the first step of this program is a good guess for the rest of it.
struct TrainerStatus {
  ProgressMessage progress;  // of rank 0, merged
  int world_size = 1;
  int restarts = 0;
  // Absent: not known.
  std::optional<double> seconds_per_step;
  bool complete = false;  // the run has ended well
};

// The body of a request, `time` in RFC 3339. Pure.
std::string TrainerStatusJson(const TrainerStatus& status, const std::string& time);

class TrainerProgress {
 public:
  // Does nothing unless the variables name the server, its CA and its token. `background` must
  // outlive this object.
  TrainerProgress(const GetVariable& get_variable, const Background& background);

  // This node's workers are about to be started.
  void OnStart(const Start& start);
  void OnProgress(int local_rank, const ProgressMessage& message, TimePoint now);
  // Sends what is new, if it is time. Returns a sentence on the first failure.
  std::optional<std::string> OnTurn(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  // The run is over: the last word, for which it waits kTrainerLastWait at most.
  void OnEnd(bool success);

 private:
  HttpsPost Request() const;

  const Background& background_;
  std::string url_;  // empty: there is no server
  std::string ca_file_;
  std::string token_file_;

  TrainerStatus status_;
  bool has_rank0_ = false;
  std::optional<std::int64_t> first_step_;  // of this round, and when it came
  TimePoint first_time_{};
  bool unsent_ = false;
  bool has_failed_ = false;  // it is said once
  TimePoint next_{};         // no request before
  std::future<absl::Status> sending_;
};

}  // namespace ddprun
