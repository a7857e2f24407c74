// SPDX-License-Identifier: Apache-2.0
// Which failure of a round is its first cause. The order in which the service hears of failures is
// nearly that in which they happened, but not always: when a worker dies, its peers' collectives
// break within microseconds, and where the dead one's agent is slow to look, or its machine busy, a
// peer's report arrives first. So, while a round is being stopped, a failure that is an origin by
// its nature takes the place of one that is a symptom by its nature; among equals the first
// received stays. Of several hung workers, which wait for each other, the one that is behind is the
// cause. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

enum class Nature {
  kOrigin,   // nothing that another worker did explains it
  kSymptom,  // its own words say that a peer was gone
};

Nature NatureOf(const Failure& failure);

// It may have failed because another worker had ended: its peer is gone, or it waits for it.
bool MayBeOfEarlyEnd(const Failure& failure);

// A worker's output ends with a Python traceback: it has failed, though it may take a while to end.
bool EndsInTraceback(const std::vector<std::string>& last_lines);

// What a worker says that it does is one of c10d's collectives, in which it waits for others:
// "all_reduce 4711", "backward, all_reduce".
bool WaitsForPeers(absl::string_view section);

// True if a is behind b: in an earlier step, or in the same step outside a collective. The others
// wait for the worker that is furthest behind.
bool IsBehind(const Progress& a, const Progress& b);

// One of the two is the cause: what the other one's report adds to what is known of it.
void LearnFrom(const Failure& other, Failure& cause);

// `later` was received after `cause`, of the same round.
bool TakesThePlaceOf(const Failure& later, const Failure& cause);

}  // namespace ddprun
