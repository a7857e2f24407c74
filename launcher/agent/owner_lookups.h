// SPDX-License-Identifier: Apache-2.0
// A node's part in who is let in at the workers' TCPStore (rendezvous/store/STORE.md): passes the
// queries of its own stores to the service, and looks up whose connections from this host are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "launcher/base/background.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class OwnerLookups {
 public:
  // `wake`, called on any thread, makes the agent's loop take a turn.
  OwnerLookups(const Background& background, std::function<void()> wake)
      : background_(background), wake_(std::move(wake)) {}

  // Asks for the node's store of this number. Threadsafe.
  void Ask(std::size_t store, std::vector<OwnerQuery> queries) ABSL_LOCKS_EXCLUDED(mutex_);
  // The store that an answer is for; its id is again the store's.
  static std::size_t TakeStore(OwnerAnswer& answer);

  // Directives. The last returns a line for the user, at most once in a while.
  void OnQueries(const OwnerQueries& queries);
  std::optional<std::string> OnRefused(const ConnectionRefused& refused, TimePoint now);

  // To be sent to the service.
  std::vector<Report> TakeReports(TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);
  // A line for the user, once: this host cannot look anything up.
  std::optional<std::string> TakeProblem() { return std::exchange(problem_, std::nullopt); }
  // When a lookup that has not ended is given up.
  std::optional<TimePoint> NextDeadline() const { return given_up_; }

 private:
  void TakeFound(std::vector<Report>& reports);
  void BeginLookup(TimePoint now);

  const Background& background_;
  const std::function<void()> wake_;

  std::deque<OwnerQuery> to_look_up_;
  std::future<std::vector<OwnerAnswer>> lookup_;  // one at a time
  std::optional<TimePoint> given_up_;
  std::optional<TimePoint> next_notice_;
  std::optional<std::string> problem_;
  bool problem_shown_ = false;

  std::mutex mutex_;
  std::vector<OwnerQuery> asked_ ABSL_GUARDED_BY(mutex_);  // by this node's stores
};

}  // namespace ddprun
