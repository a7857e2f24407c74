// SPDX-License-Identifier: Apache-2.0
// Merges equal lines of several workers. Pure: lines and `now` in, groups out.
//
// A line waits for equal lines of the other workers, for `window` at most. Groups leave in the
// order of their first lines, and a worker joins only groups behind its last one: so no worker's
// later line overtakes an earlier one. A group that no other worker can join leaves at once: the
// line of a single worker is never delayed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "launcher/base/output_stream.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class LineFolder {
 public:
  struct Limits {
    std::chrono::milliseconds window{0};
    std::size_t bytes_max = 0;  // of waiting text: beyond it the oldest leaves early
    std::size_t lines_max = 0;
  };
  struct Group {
    OutputStream stream = OutputStream::kOut;
    std::string text;
    std::vector<int> workers;  // that wrote it, in ascending order
  };
  using Groups = std::vector<Group>;

  explicit LineFolder(const Limits& limits) : limits_(limits) {}

  // Begins with workers 0 to `count` - 1 and forgets what was before. A worker whose lines are not
  // passed to Add() must be ended at once, or the others' lines wait for it.
  void Start(int count);

  // Each returns the groups that leave now, in this order.
  Groups Add(int worker, OutputStream stream, std::string_view text, TimePoint now);
  Groups EndWorker(int worker, TimePoint now);  // the others no longer wait for it
  Groups Expire(TimePoint now);
  Groups Flush();

  // When Expire() has something to do.
  std::optional<TimePoint> NextDeadline() const;

 private:
  struct Pending {
    Group group;
    TimePoint time;  // of its first line
  };
  struct Worker {
    bool active = false;
    std::uint64_t last = 0;  // the number of the last group it has joined
  };

  std::uint64_t NumberToJoin(const Worker& worker, const std::string& key) const;
  bool IsOverLimit() const;
  void PopFront(Groups& leaving);
  Groups Release(TimePoint now);

  const Limits limits_;
  std::vector<Worker> workers_;
  int idle_ = 0;  // active workers without a waiting line: each may still join any group
  std::deque<Pending> pending_;
  std::uint64_t first_ = 1;  // the number of the front group
  std::size_t bytes_ = 0;
  absl::flat_hash_map<std::string, std::deque<std::uint64_t>> by_key_;  // numbers, rising
};

}  // namespace ddprun
