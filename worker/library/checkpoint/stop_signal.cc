// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/stop_signal.h"

#include <signal.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

namespace ddprun {
namespace {

// Lock-free, as signal handlers need it.
std::atomic<int> received{0};
std::atomic<bool> acknowledged{false};
std::atomic<unsigned> patience_seconds{2};
std::atomic<std::int64_t> received_at{0};  // milliseconds; 0: none was
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<unsigned>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

struct Handled {
  int signal;
  const char* name;
  struct sigaction old;
};
Handled handled[] = {
    {SIGTERM, "SIGTERM", {}},
    {SIGINT, "SIGINT", {}},
    {SIGHUP, "SIGHUP", {}},
    {SIGQUIT, "SIGQUIT", {}},
};
struct sigaction old_alarm;

std::int64_t Milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void ArmAlarm() {
  if (!acknowledged.load()) alarm(patience_seconds.load());
}

void Ask(int signal) {
  const std::int64_t now = Milliseconds();
  // The time itself marks the first signal, so that a signal on another thread at the same moment
  // never reads a time that is not set yet.
  std::int64_t first = 0;
  if (received_at.compare_exchange_strong(first, now)) {
    received.store(signal);
    ArmAlarm();
  } else if (now - first >= StopSignal::kRepeatMin.count()) {
    ::signal(signal, SIG_DFL);
    raise(signal);  // comes when this handler is left
  }
}

void GiveUp(int) {
  const int signal = received.load();
  for (const Handled& one : handled) {
    if (one.signal != signal) continue;
    const char* const words[] = {program_invocation_short_name, ": ended by ", one.name,
                                 " while it waited for other ranks or for a step's end; what came "
                                 "after the latest checkpoint is not saved\n"};
    iovec pieces[std::size(words)];
    for (std::size_t i = 0; i < std::size(words); ++i)
      pieces[i] = {const_cast<char*>(words[i]), std::strlen(words[i])};
    [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, pieces, std::size(pieces));
  }
  _exit(128 + signal);
}

void Set(int signal, void (*handler)(int), int flags, struct sigaction* old) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, old);
}

}  // namespace

StopSignal::StopSignal() {
  received.store(0);
  received_at.store(0);
  acknowledged.store(false);
  patience_seconds.store(static_cast<unsigned>(kPatienceMin.count()));
  Set(SIGALRM, GiveUp, 0, &old_alarm);
  for (Handled& one : handled) {
    Set(one.signal, Ask, SA_RESTART, &one.old);
    if (one.signal == SIGHUP && one.old.sa_handler == SIG_IGN)
      sigaction(one.signal, &one.old, nullptr);
  }
}

StopSignal::~StopSignal() {
  for (const Handled& one : handled) sigaction(one.signal, &one.old, nullptr);
  alarm(0);
  sigaction(SIGALRM, &old_alarm, nullptr);
}

int StopSignal::Received() { return received.load(std::memory_order_relaxed); }

void StopSignal::Progress(std::chrono::duration<double> patience) {
  const double seconds =
      std::clamp(std::ceil(patience.count()), static_cast<double>(kPatienceMin.count()),
                 static_cast<double>(kPatienceMax.count()));
  patience_seconds.store(static_cast<unsigned>(seconds), std::memory_order_relaxed);
  if (Received() != 0) ArmAlarm();
}

void StopSignal::Acknowledge() {
  acknowledged.store(true);
  alarm(0);
}

void StepPatience::Add(Seconds step) {
  unknown_ = std::max<std::int64_t>(unknown_ - 1, 0);
  if (steps_++ == kWindow) {
    steps_ = 1;
    longest_before_ = std::exchange(longest_, Seconds{0});
  }
  longest_ = std::max(longest_, step);
}

StepPatience::Seconds StepPatience::Get() const {
  if (unknown_ > 0) return StopSignal::kPatienceMax;
  return kTimes * std::max(longest_, longest_before_) + StopSignal::kPatienceMin;
}

}  // namespace ddprun
