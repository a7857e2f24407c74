// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace ddprun {
namespace {

// Lock-free, as signal handlers need it.
std::atomic<int> received{0};
std::atomic<unsigned> patience_seconds{2};
std::atomic<std::int64_t> received_at{0};  // milliseconds; 0: none was
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

struct sigaction old_term;
struct sigaction old_interrupt;
struct sigaction old_alarm;

std::int64_t Milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void Ask(int signal) {
  const std::int64_t now = Milliseconds();
  // What tells the first one has its time in it, so that one on another thread, in that moment,
  // does not read the time before it is there.
  std::int64_t first = 0;
  if (received_at.compare_exchange_strong(first, now)) {
    received.store(signal);
    alarm(patience_seconds.load());
  } else if (now - first >= StopSignal::kRepeatMin.count()) {
    ::signal(signal, SIG_DFL);
    raise(signal);  // comes when this handler is left
  }
}

void GiveUp(int) { _exit(128 + received.load()); }

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
  patience_seconds.store(static_cast<unsigned>(kPatienceMin.count()));
  Set(SIGALRM, GiveUp, 0, &old_alarm);
  Set(SIGTERM, Ask, SA_RESTART, &old_term);
  Set(SIGINT, Ask, SA_RESTART, &old_interrupt);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &old_term, nullptr);
  sigaction(SIGINT, &old_interrupt, nullptr);
  alarm(0);
  sigaction(SIGALRM, &old_alarm, nullptr);
}

int StopSignal::Received() { return received.load(std::memory_order_relaxed); }

void StopSignal::SetPatience(std::chrono::duration<double> patience) {
  const double seconds =
      std::clamp(std::ceil(patience.count()), static_cast<double>(kPatienceMin.count()),
                 static_cast<double>(kPatienceMax.count()));
  patience_seconds.store(static_cast<unsigned>(seconds), std::memory_order_relaxed);
}

void StopSignal::Heard() { alarm(0); }

}  // namespace ddprun
