// SPDX-License-Identifier: Apache-2.0
#include "launcher/notify/notifier.h"

#include <poll.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/node/https_post.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kFinishLook{10};

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

Notifier::Notifier(NotifyTarget target, NotifySchedule schedule, const Background& background,
                   std::function<void()> wake)
    : target_(std::move(target)),
      schedule_(std::move(schedule)),
      background_(background),
      wake_(std::move(wake)),
      command_(kNotifyTimeout) {}

void Notifier::OnEvent(const RunEvent& event) {
  {
    absl::MutexLock lock(&mutex_);
    if (events_.size() >= kNotifyEventsMax) return;
    events_.push_back(event);
  }
  wake_();
}

std::optional<TimePoint> Notifier::NextDeadline() const {
  // The end of a thread's call wakes the loop.
  if (posting_.valid()) return std::nullopt;
  if (const auto command = command_.NextDeadline()) return command;
  return schedule_.NextDeadline();
}

std::optional<std::string> Notifier::TakeProblem(Poller& poller, TimePoint now) {
  std::optional<std::string> problem;  // of a message whose result is known; empty: it was taken
  if (const auto result = command_.OnTurn(poller, now))
    problem = result->success() ? "" : WhyFailed(*result, kNotifyTimeout, "--notify");
  if (const auto status = TakeResult(posting_)) {
    posting_ = {};
    problem = std::string(status->message());
  }
  if (!problem.has_value()) return std::nullopt;
  schedule_.OnResult(problem->empty(), now);
  if (problem->empty() || std::exchange(has_failed_, true)) return std::nullopt;
  return absl::StrCat("--notify: ", NameOf(target_), " took no message: ", *problem,
                      "; the run goes on, and later failures are not shown");
}

void Notifier::Send(const Notification& notification, const sigset_t& signal_mask, Poller& poller,
                    TimePoint now) {
  std::string body = BodyOf(target_, notification, std::chrono::system_clock::now());
  if (target_.form == NotifyTarget::Form::kProgram)
    return command_.Begin(target_.address, signal_mask, poller, now, body);
  HttpsPost post{.url = target_.address,
                 .ca_file = "",
                 .bearer = "",
                 .body = std::move(body),
                 .timeout = kNotifyTimeout,
                 .content_type = ContentTypeOf(target_),
                 .without_tls = true,
                 .through_proxy = true};
  posting_ = background_.Start<absl::Status>([post = std::move(post)] { return Post(post); });
}

std::optional<std::string> Notifier::OnTurn(const std::function<std::string()>& progress,
                                            const sigset_t& signal_mask, Poller& poller,
                                            TimePoint now) {
  std::vector<RunEvent> events;
  {
    absl::MutexLock lock(&mutex_);
    events.swap(events_);
  }
  for (const RunEvent& event : events) schedule_.OnEvent(event, now);
  std::optional<std::string> problem = TakeProblem(poller, now);
  if (sending()) return problem;
  const auto due = schedule_.NextDeadline();
  if (!due.has_value() || *due > now) return problem;
  if (const auto notification = schedule_.Take(progress(), now))
    Send(*notification, signal_mask, poller, now);
  return problem;
}

std::optional<std::string> Notifier::Finish(const sigset_t& signal_mask, Poller& poller) {
  const TimePoint deadline = Now() + kNotifyLastTimeout;
  std::optional<std::string> problem;
  while (true) {
    const TimePoint now = Now();
    auto one = OnTurn([] { return std::string(); }, signal_mask, poller, now);
    if (one.has_value()) problem = std::move(one);
    if (!sending() && !schedule_.NextDeadline().has_value()) return problem;
    if (now >= deadline) break;
    ::poll(nullptr, 0, static_cast<int>(kFinishLook.count()));
  }
  if (has_failed_) return problem;
  return absl::StrCat("--notify: ", NameOf(target_), " did not take the last message within ",
                      kNotifyLastTimeout.count(), " s");
}

}  // namespace ddprun
