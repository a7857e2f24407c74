// SPDX-License-Identifier: Apache-2.0
// What a worker's end means for the run: the failure that is reported, and its entry among the
// round's outcomes. Pure.
#pragma once

#include <string>

#include "launcher/supervisor/supervisor.h"

namespace ddprun {

// `start`: the worker's round; `host`: this node's name.
Failure ToFailure(const WorkerEnded& ended, const Start& start, const std::string& host);
Failure ToFailure(const WorkerHung& hung, const Start& start, const std::string& host);

WorkerEnds ToWorkerEnds(const WorkerEnded& ended);

}  // namespace ddprun
