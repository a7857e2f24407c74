// SPDX-License-Identifier: Apache-2.0
// Determines by which of its addresses the other ranks reach this host.
#pragma once

#include <string>

#include "proto/worker_env.h"

namespace ddprun {

// The source address of the kernel's route to MASTER_ADDR: the interface that the run already uses,
// whatever the host's name resolves to. Where that is loopback although there are other nodes (a
// node's own name often stands for 127.0.1.1 in /etc/hosts), the default route's. Throws
// std::runtime_error if there is none; the message names GLOO_SOCKET_IFNAME.
std::string AddressForPeers(const WorkerEnv& env);

// The interface that has `address` ("eth0"); empty if none has.
std::string InterfaceOf(const std::string& address);

}  // namespace ddprun
