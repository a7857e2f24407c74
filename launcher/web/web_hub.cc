// SPDX-License-Identifier: Apache-2.0
#include "launcher/web/web_hub.h"

#include <utility>

#include "absl/time/time.h"
#include "launcher/base/limits.h"

namespace ddprun {

void WebHub::Change(const std::function<void(WebState&)>& change) {
  absl::MutexLock lock(&mutex_);
  change(state_);
}

void WebHub::Publish() {
  absl::MutexLock lock(&mutex_);
  std::string delta = state_.TakeDelta();
  if (delta.empty()) return;
  bytes_ += delta.size();
  deltas_.push_back(std::move(delta));
  ++published_;
  while (bytes_ > kWebQueueBytesMax && deltas_.size() > 1) {
    bytes_ -= deltas_.front().size();
    deltas_.pop_front();
  }
}

void WebHub::End(std::chrono::milliseconds timeout) {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  const auto nobody_follows = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return followers_ == 0; };
  mutex_.AwaitWithTimeout(absl::Condition(&nobody_follows), absl::FromChrono(timeout));
}

void WebHub::CountFollower(int change) {
  absl::MutexLock lock(&mutex_);
  followers_ += change;
}

bool WebHub::HasFollowers() const {
  absl::MutexLock lock(&mutex_);
  return followers_ > 0;
}

absl::StatusOr<std::optional<WebHub::Message>> WebHub::Next(std::uint64_t& seen, TimePoint until) {
  absl::MutexLock lock(&mutex_);
  Waiting waiting{this, seen};
  mutex_.AwaitWithTimeout(absl::Condition(&WebHub::HasNews, &waiting),
                          absl::FromChrono(until - std::chrono::steady_clock::now()));
  if (seen == published_) {
    if (ended_) return absl::OutOfRangeError("the page has ended");
    return std::nullopt;
  }
  const std::uint64_t behind = published_ - seen;
  if (seen == 0 || behind > deltas_.size()) {
    seen = published_;
    return Message{.whole = true, .json = state_.Snapshot(control_)};
  }
  ++seen;
  return Message{.whole = false, .json = deltas_[deltas_.size() - behind]};
}

}  // namespace ddprun
