// SPDX-License-Identifier: Apache-2.0
// This process in the rounds of its run: what it reports to its agent, how its waits end with a
// round, and which round is next.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "ddprun/detail/interrupt.h"
#include "proto/worker_env.h"
#include "worker/library/progress/progress_sender.h"
#include "worker/library/rounds/round_listener.h"

namespace ddprun {

// Whether the agent has started this process before there is a round for it (`--spares`).
bool IsParked();

// What such a process knows of its environment. A variable that is added may move the environment
// while another thread reads it; one that is there already is replaced in place. So this makes room
// for all that a round may bring: call it before the first thread. An empty variable counts as one
// that is not set.
WorkerEnv ParkedEnvironment();

class RoundMember {
 public:
  // A rank that has left its round by itself, and that the agent does not answer, ends so much
  // later.
  static constexpr std::chrono::seconds kAnswerLimit{20};

  // Opens the sockets that `env` names. With `can_be_kept` tells the agent so and ignores SIGPIPE,
  // as Gloo writes to connections that were shut down. Again, where a new round names others.
  void Listen(const WorkerEnv& env, bool can_be_kept);

  ProgressSender& progress() { return *progress_; }
  // Null: not kept.
  RoundListener* listener() { return listener_.get(); }

  // In the round of `env` from now on, which is reported. The interrupt of its waits; null if this
  // process is not kept.
  std::shared_ptr<Interrupt> Enter(const WorkerEnv& env);

  // Outside a round from now on. The environment of the next one, which the process's variables are
  // then, too; absent if `gives_up` becomes true, or if this rank has left the round for the error
  // `left_by_itself` and the agent does not answer. Throws std::runtime_error if the round's
  // environment cannot be.
  std::optional<WorkerEnv> AwaitRound(const std::exception_ptr& left_by_itself,
                                      const std::function<bool()>& gives_up);

 private:
  bool can_be_kept_ = false;
  std::optional<ProgressSender> progress_;
  std::unique_ptr<RoundListener> listener_;
};

}  // namespace ddprun
