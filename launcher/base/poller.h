// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// The kind of descriptor that became ready.
enum class Source : std::uint32_t {
  kSession,
  kSignal,
  kWarden,
  kWorkerEnd,
  kWorkerOut,
  kWorkerErr,
  kConsole,
  kLogNotice,
  kBackground,
  kControlPipe,
  kStdin,
  kWorkerProgress,
  kStacks,
  kSideCommand
};

struct Ready {
  Source source = Source::kSession;
  int worker = 0;  // of the kWorker ones
};

// Waits for descriptors with epoll. The agent waits nowhere else.
class Poller {
 public:
  Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

  // False: it cannot be watched; errno has the reason. A negative `fd` counts as EMFILE: it could
  // not be made because no descriptor was left.
  [[nodiscard]] bool Add(int fd, Ready ready, std::uint32_t events = EPOLLIN) {
    if (fd < 0 || !epoll_.valid()) {
      errno = EMFILE;
      return false;
    }
    epoll_event event{};
    event.events = events;
    event.data.u64 =
        (static_cast<std::uint64_t>(ready.source) << 32) | static_cast<std::uint32_t>(ready.worker);
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  // Readable when one of them is ready: a poller can be watched by another.
  int fd() const { return epoll_.get(); }

  void Remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // Empty once the deadline is reached.
  std::vector<Ready> Wait(std::optional<TimePoint> deadline) {
    int timeout_ms = -1;
    if (deadline.has_value()) {
      const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(
          *deadline - std::chrono::steady_clock::now());
      // Longer waits come back early, which is harmless.
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(remaining.count(), 0, 3'600'000));
    }
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    std::vector<Ready> ready;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
      ready.push_back({static_cast<Source>(data >> 32), static_cast<int>(data & 0xFFFFFFFFu)});
    }
    return ready;
  }

 private:
  const OwnedFd epoll_;
};

}  // namespace ddprun
