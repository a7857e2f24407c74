// SPDX-License-Identifier: Apache-2.0
// Reads from c10d's flight recorders where this process is among its collectives. Gloo's groups
// write to one recorder, NCCL's to another.
#pragma once

#include <string>
#include <vector>

#include "proto/collective.h"
#include "worker/progress/graph_steps.h"

namespace ddprun {

// Of what c10d::dump_fr_trace_json() and c10d::dump_nccl_trace_json() give, version 2. What cannot
// be read is as if it were not there. Pure.
CollectivePlace PlaceIn(const std::vector<std::string>& records);

// Of this process now; from any thread. `with_nccl`: the module of accelerator.h is open. A step
// among `graph_steps` is said before any collective. May take tens of milliseconds, and blocks
// where CUDA does.
CollectivePlace PlaceNow(bool with_nccl, GraphSteps& graph_steps);

}  // namespace ddprun
