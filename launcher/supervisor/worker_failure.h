// SPDX-License-Identifier: Apache-2.0
// Converts the end of a worker to the failure that is reported and to its entry in the round's
// outcomes. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/supervisor/supervisor.h"

namespace ddprun {

// `start`: the worker's round; `host`: this node's name.
Failure ToFailure(const WorkerEnded& ended, const Start& start, const std::string& host);
Failure ToFailure(const WorkerHung& hung, const Start& start, const std::string& host);
Failure ToFailure(const WorkerLeft& left, const Start& start, const std::string& host);

// The first of `succeeded`, this node's workers that exited with code 0, which had not begun the
// collective that others waited in when `cause` happened, on this node or another one. Absent:
// there is none, or `cause` has another reason.
std::optional<Failure> FindEarlyEnd(const std::vector<WorkerEnded>& succeeded, const Failure& cause,
                                    const Start& start, const std::string& host);

WorkerEnds ToWorkerEnds(const WorkerEnded& ended);

}  // namespace ddprun
