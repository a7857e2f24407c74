// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/status_text.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// False: it has passed without one.
bool EndedUntil(Clock::time_point until, WatchSignals& signals) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd fd = {signals.fd(), POLLIN, 0};
    if (poll(&fd, 1, static_cast<int>(std::max<std::int64_t>(0, left.count()))) == 0) return false;
    const auto action = signals.Take();
    if (action == WatchSignals::Action::kEnd) return true;
    if (action == WatchSignals::Action::kSuspend) raise(SIGSTOP);
  }
}

}  // namespace

std::string ClockText() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return absl::StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
}

int WatchStatus(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
                WatchSignals& signals) {
  bool reached = false;
  std::string said;
  while (true) {
    const auto next = Clock::now() + options.interval;
    // A signal must not wait long for a service that does not answer.
    const auto status =
        GetStatus(channel, options.run_id,
                  std::min<std::chrono::milliseconds>(options.timeout, kWatchTimeoutMax));
    reached = reached || status.ok();
    const std::string lines =
        status.ok() ? absl::StrJoin(StatusLines(*status), absl::StrCat("\n", ClockText(), " "))
                    : std::string(status.status().message());
    if (lines != said) {
      std::printf("%s %s\n", ClockText().c_str(), lines.empty() ? "no run" : lines.c_str());
      std::fflush(stdout);
    }
    said = lines;
    if (!status.ok() || EndedUntil(next, signals)) return reached ? 0 : 1;
  }
}

}  // namespace ddprun
