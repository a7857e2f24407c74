// SPDX-License-Identifier: Apache-2.0
// The number of all workers of a run, as mpirun and srun have it: -n. Pure.
#pragma once

#include "launcher/base/flags.h"
#include "launcher/options/options.h"

namespace ddprun {

// Completes the options by what follows from it: the workers of each node from the
// number of nodes, or the reverse. Rejects numbers that contradict each other. With -H and the like
// the hosts are not known here: see hosts/hosts_total.h. Call it when the number of nodes is known
// from flags and scheduler.
void FollowTotal(Reader& reader, Options& options);

}  // namespace ddprun
