// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/round_member.h"

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "proto/progress_message.h"
#include "proto/round_message.h"

namespace ddprun {

bool IsParked() {
  const char* parked = std::getenv(kParkedVariable);
  return parked != nullptr && std::string_view(parked) == "1";
}

WorkerEnv ParkedEnvironment() {
  WorkerEnv all;
  all.error_file = all.agent_socket = all.notify_socket = "-";
  all.round = 1;
  all.one_round = all.console_is_terminal = true;
  for (const auto& [name, value] : ToEnviron(all)) setenv(name.c_str(), "", /*overwrite=*/0);
  WorkerEnv env;
  env.notify_socket = std::getenv(kNotifySocketVariable);
  return env;
}

void RoundMember::Listen(const WorkerEnv& env, bool can_be_kept) {
  can_be_kept_ = can_be_kept;
  if (progress_ && listener_ && listener_->notify_socket() == env.notify_socket) return;
  progress_.emplace(env.notify_socket);
  listener_ = can_be_kept ? RoundListener::Start(env.notify_socket) : nullptr;
  if (listener_) std::signal(SIGPIPE, SIG_IGN);
}

std::shared_ptr<Interrupt> RoundMember::Enter(const WorkerEnv& env) {
  std::shared_ptr<Interrupt> interrupt;
  if (listener_) {
    interrupt = std::make_shared<Interrupt>();
    listener_->Enter(env.round, interrupt);
  }
  ProgressMessage begun;
  begun.section = "init";
  progress_->Send(begun);
  return interrupt;
}

std::optional<WorkerEnv> RoundMember::AwaitRound(const std::exception_ptr& left_by_itself,
                                                 const std::function<bool()>& gives_up) {
  // If this rank left by itself, the collective that it was in says more than "round".
  ProgressMessage waiting;
  waiting.section = "round";
  if (!left_by_itself) progress_->Send(waiting);
  const auto deadline = std::chrono::steady_clock::now() + kAnswerLimit;
  const std::optional<RoundBegins> begins = listener_->AwaitRound([&] {
    if (gives_up()) return true;
    return left_by_itself && std::chrono::steady_clock::now() >= deadline &&
           !listener_->AwaitBroken(std::chrono::milliseconds(0));
  });
  if (!begins) return std::nullopt;
  absl::StatusOr<WorkerEnv> env = EnvOf(*begins);
  if (!env.ok())
    throw std::runtime_error("round " + std::to_string(begins->round) + ": " +
                             std::string(env.status().message()));
  env->round = begins->round;
  if (env->notify_socket.empty()) env->notify_socket = listener_->notify_socket();
  // For what reads them by name, such as where a failure is recorded.
  for (const auto& [name, value] : begins->variables)
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  Listen(*env, can_be_kept_);
  return *std::move(env);
}

}  // namespace ddprun
