// SPDX-License-Identifier: Apache-2.0
// The service's journal on simulated time: what is appended is safe once it was synced, and a crash
// leaves any part of the rest, cut at a record.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/sim_random.h"

namespace ddprun {

class SimDisk {
 public:
  struct Record {
    std::string bytes;
    std::uint64_t run = 0;
    std::uint64_t fingerprint = 0;  // of the run's state after it, for the test alone
  };

  // The record's number, from 1.
  std::uint64_t Append(Record record) {
    records_.push_back(std::move(record));
    return first_ + records_.size() - 1;
  }
  std::uint64_t last() const { return first_ + records_.size() - 1; }
  std::uint64_t synced() const { return synced_; }
  void Synced(std::uint64_t record) { synced_ = record; }
  // All of it at once, or nothing: the state after the last record.
  void Replace(std::vector<Record> snapshot) {
    const std::uint64_t after = last();
    records_ = std::move(snapshot);
    first_ = after + 1 - records_.size();
    synced_ = after;
  }
  void Crash(SimRandom& random) {
    const std::uint64_t left = synced_ + random.Below(last() - synced_ + 1);
    records_.resize(left + 1 - first_);
    synced_ = left;
  }

  std::uint64_t first() const { return first_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  std::uint64_t first_ = 1;  // number of records_[0]; a snapshot may make it wrap below 1
  std::uint64_t synced_ = 0;
  std::vector<Record> records_;
};

}  // namespace ddprun
