// SPDX-License-Identifier: Apache-2.0
// Keeps hosts apart whose names are equal, as those of machines cloned from one image and of many
// containers are: a part of the membership core.
#pragma once

#include <string>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// What the run calls the host of that node: "ubuntu", or "ubuntu at 10.0.0.2" where another host of
// the run has the name already. A host is the one that had the name before if it has the same
// address, or the same addresses of all interfaces.
std::string HostNameInRun(const RunState& state, const Join& join);

// A node of this host, whose name is that of HostNameInRun(), has joined.
void RememberHost(RunState& state, const Join& join);

}  // namespace ddprun
