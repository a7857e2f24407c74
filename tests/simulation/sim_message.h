// SPDX-License-Identifier: Apache-2.0
// What simulated processes say to each other: the session's and the store's own values, as they are
// before convert.cc makes messages of them. A status is why the service ends a stream of the store.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/values/session_types.h"
#include "rendezvous/values/store_types.h"
#include "tests/simulation/sim_network.h"

namespace ddprun {

using SimMessage =
    std::variant<Report, Directive, StoreHello, StoreBatch, std::vector<StoreReply>, absl::Status>;
using SimRunNetwork = SimNetwork<SimMessage>;

// What happened, in words, if anyone wants to know: a seed is run without, and again with it once
// it has failed.
class SimTrace {
 public:
  explicit SimTrace(bool on) : on_(on) {}
  template <typename Words>
  void Report(TimePoint now, Words&& words) {
    if (on_) lines_.emplace_back(now, words());
  }
  // The last `count` lines.
  std::string Last(std::size_t count) const;

 private:
  const bool on_;
  std::vector<std::pair<TimePoint, std::string>> lines_;
};

std::string WordsOf(const Report& report);
std::string WordsOf(const Directive& directive);

}  // namespace ddprun
