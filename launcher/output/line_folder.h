// SPDX-License-Identifier: Apache-2.0
// Merges equal lines of several workers into groups. Pure.
//
// A line waits at most `window` for equal lines of the other workers. Groups are released in the
// order of their first lines, and a worker joins only groups behind its last one, so lines of one
// worker keep their order. A group that no other worker can join is released at once: the line of a
// single worker is never delayed.
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
    std::size_t bytes_max = 0;  // of waiting text: beyond it the oldest group is released early
    std::size_t lines_max = 0;
  };
  struct Group {
    OutputStream stream = OutputStream::kOut;
    std::string text;
    std::vector<int> workers;  // ascending
    TimePoint time = {};       // of its first line
  };
  using Groups = std::vector<Group>;

  explicit LineFolder(const Limits& limits) : limits_(limits) {}

  // Starts with workers 0 to `count` - 1 and discards all groups. Call EndWorker() for a worker
  // whose lines are not passed to Add(), or the others' lines wait for it.
  void Start(int count);

  // Each returns the groups that are released now, in order.
  Groups Add(int worker, OutputStream stream, std::string_view text, TimePoint now);
  Groups EndWorker(int worker, TimePoint now);  // the other workers no longer wait for it
  Groups Expire(TimePoint now);
  Groups Flush();

  // The time for the next Expire().
  std::optional<TimePoint> NextDeadline() const;

 private:
  struct Worker {
    bool active = false;
    std::uint64_t last = 0;  // the number of the last group that it has joined
  };

  std::uint64_t NumberToJoin(const Worker& worker, const std::string& key) const;
  bool IsOverLimit() const;
  void PopFront(Groups& leaving);
  Groups Release(TimePoint now);

  const Limits limits_;
  std::vector<Worker> workers_;
  int idle_ = 0;  // active workers without a waiting line, which may join any group
  std::deque<Group> pending_;
  std::uint64_t first_ = 1;  // the number of the front group
  std::size_t bytes_ = 0;
  absl::flat_hash_map<std::string, std::deque<std::uint64_t>> by_key_;  // numbers, rising
};

}  // namespace ddprun
