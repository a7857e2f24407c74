// SPDX-License-Identifier: Apache-2.0
// Threads for system calls that a dead disk or name service may never answer, for callers that must
// go on.
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

// Blocks all signals of the calling thread, and of the threads that it starts meanwhile: signals
// are for the program's own threads, and a pipe without a reader is an error like any other.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Runs `body` on a detached thread with all signals blocked. `body` must own all that it uses,
// since it may outlive the caller. The error: no thread could be started.
inline std::error_code RunDetached(std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    std::thread(std::move(body)).detach();
  } catch (const std::system_error& thrown) {
    return thrown.code();
  }
  return {};
}

// Runs `call` on a thread of its own and waits for its result. Absent: the deadline has passed, or
// no thread could be started. `call` must own all that it uses, as above.
template <typename Result>
std::optional<Result> CallWithDeadline(std::chrono::milliseconds timeout,
                                       std::function<Result()> call) {
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result> result;
  };
  auto state = std::make_shared<State>();
  const std::error_code error = RunDetached([state, call = std::move(call)] {
    Result result = call();
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->result = std::move(result);
    state->done.notify_all();
  });
  if (error) return std::nullopt;
  std::unique_lock<std::mutex> lock(state->mutex);
  state->done.wait_until(lock, std::chrono::steady_clock::now() + timeout,
                         [&] { return state->result.has_value(); });
  return std::move(state->result);
}

}  // namespace ddprun
