// SPDX-License-Identifier: Apache-2.0
// The state of a run's page, between those who change it and the threads that each serve a page.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "launcher/web/web_state.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

// Threadsafe.
class WebHub {
 public:
  WebHub(const std::string& name, bool control) : control_(control), state_(name) {}

  void Change(const std::function<void(WebState&)>& change);
  // What has changed since the last call goes to all pages.
  void Publish();
  // No page gets more than what is published, which those that follow get within `timeout`.
  void End(std::chrono::milliseconds timeout);

  // A page that is open, as long as it lives.
  class Follower {
   public:
    explicit Follower(WebHub& hub) : hub_(hub) { hub_.CountFollower(1); }
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;
    ~Follower() { hub_.CountFollower(-1); }

   private:
    WebHub& hub_;
  };
  bool HasFollowers() const;

  struct Message {
    bool whole = false;  // or what has changed
    std::string json;
  };
  // What follows the first `seen` publications, which it counts on; the whole where that is 0, or
  // more than is kept. Absent: nothing until `until`. OUT_OF_RANGE: it has
  // ended, and nothing is left.
  absl::StatusOr<std::optional<Message>> Next(std::uint64_t& seen, TimePoint until);

 private:
  void CountFollower(int change);

  struct Waiting {
    const WebHub* hub;
    std::uint64_t seen;
  };
  static bool HasNews(Waiting* waiting) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return waiting->hub->ended_ || waiting->seen != waiting->hub->published_;
  }

  const bool control_;
  mutable absl::Mutex mutex_;
  int followers_ ABSL_GUARDED_BY(mutex_) = 0;
  WebState state_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> deltas_ ABSL_GUARDED_BY(mutex_);  // the last ones
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;           // of them
  std::uint64_t published_ ABSL_GUARDED_BY(mutex_) = 1;     // 0 is a page that has seen nothing
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun
