// SPDX-License-Identifier: Apache-2.0
// Converts the end of a worker to the failure that is reported and to its entry in the round's
// outcomes. Pure.
#pragma once

#include <string>

#include "launcher/supervisor/supervisor.h"

namespace ddprun {

// `start`: the worker's round; `host`: this node's name.
Failure ToFailure(const WorkerEnded& ended, const Start& start, const std::string& host);
Failure ToFailure(const WorkerHung& hung, const Start& start, const std::string& host);
Failure ToFailure(const WorkerLeft& left, const Start& start, const std::string& host);

WorkerEnds ToWorkerEnds(const WorkerEnded& ended);

}  // namespace ddprun
