// SPDX-License-Identifier: Apache-2.0
// For a system call that a dead disk may never answer, in a thread that must go on.
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

// Runs `call` on a thread of its own and waits for its result. Absent: the time is over, or there
// is no thread to be had. The thread may then outlive the caller: `call` must own all that it uses.
template <typename Result>
std::optional<Result> CallWithDeadline(std::chrono::milliseconds timeout,
                                       std::function<Result()> call) {
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result> result;
  };
  auto state = std::make_shared<State>();
  // Signals are for the program's own threads.
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
