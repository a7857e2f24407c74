// SPDX-License-Identifier: Apache-2.0
// What the workers of a round may read and must not: watches what each asks and is answered. Values
// say who wrote them and how often he had, so that each answer can be judged at once, over any
// number of services and streams.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/values/store_types.h"

namespace ddprun {

class StoreInvariants {
 public:
  // One run's round.
  using Place = std::pair<std::uint64_t, RoundId>;
  // An operation as it was asked, with what every later answer must know.
  struct Asked {
    Place place;
    StoreOp op;
    std::int64_t least = 0;
  };

  // A value: written by `writer` as his `number`th.
  static std::string Value(RoundId round, const std::string& key, std::int64_t number);

  // Each writes keys of its own only.
  Asked Ask(Place place, StoreOp op);
  // The sentence of what does not hold, or nothing.
  std::string Answer(const Asked& asked, const StoreResult& result);
  // A worker has passed the barrier of a world of this size.
  std::string Met(Place place, int world_size);
  // The store does this now.
  std::string Mutated(RoundId of_op, RoundId of_run, RoundId of_store) const;

 private:
  struct Key {
    std::int64_t written = 0;  // the highest number that was asked for
    std::int64_t known = 0;    // that was acknowledged or read
    std::int64_t adds = 0;     // asked for
    std::int64_t added = 0;    // acknowledged
    std::set<std::int64_t> sums;
    std::set<std::string> pushed;
    std::set<std::string> popped;
  };

  std::map<Place, std::map<std::string, Key>> keys_;
};

}  // namespace ddprun
