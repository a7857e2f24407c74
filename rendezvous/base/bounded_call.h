// SPDX-License-Identifier: Apache-2.0
// Calls a function that may block forever, such as a system call on a dead disk, with a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace ddprun {

// Runs `call` on a new thread and waits for its result. Absent: the deadline passed, or no thread
// could be started. The thread may then outlive the caller: `call` must own everything it uses.
template <typename Result>
std::optional<Result> CallWithDeadline(std::chrono::milliseconds timeout,
                                       std::function<Result()> call) {
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result> result;
  };
  auto state = std::make_shared<State>();
  // The program's own threads handle signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  bool started = true;
  try {
    std::thread([state, call = std::move(call)] {
      Result result = call();
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->result = std::move(result);
      state->done.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return std::nullopt;
  std::unique_lock<std::mutex> lock(state->mutex);
  state->done.wait_until(lock, std::chrono::steady_clock::now() + timeout,
                         [&] { return state->result.has_value(); });
  return std::move(state->result);
}

}  // namespace ddprun
