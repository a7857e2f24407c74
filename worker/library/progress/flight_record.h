// SPDX-License-Identifier: Apache-2.0
// Reads from c10d's flight recorders where this process is among its collectives. Gloo's groups
// write to one recorder, NCCL's to another.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "proto/collective.h"

namespace ddprun {

// Reads what c10d::dump_fr_trace_json() and c10d::dump_nccl_trace_json() give, version 2. Ignores
// what cannot be read and what began before `begin`: a process that goes on in another round has
// unfinished collectives of the one before. Pure.
using RecordTime = std::chrono::system_clock::time_point;
CollectivePlace PlaceIn(const std::vector<std::string>& records, RecordTime begin = {});

// The place of this process now; from any thread. `with_nccl`: accelerator.h's module is open. What
// is known of `queued` steps, which no recorder sees, comes before any collective. May take tens of
// milliseconds, and blocks where CUDA does.
CollectivePlace PlaceNow(bool with_nccl, const CollectivePlace& queued, RecordTime begin = {});

}  // namespace ddprun
