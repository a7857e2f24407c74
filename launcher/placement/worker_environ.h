// SPDX-License-Identifier: Apache-2.0
// The environment of a worker: ddprun's own, and the variables of its rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/node/network.h"
#include "launcher/placement/placement.h"
#include "proto/worker_env.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// `inherited`: NAME=VALUE. Variables that an outer ddprun or torchrun has set for its workers are
// replaced or removed. Then the variables of `place`: its GPUs, LOCAL_RANK=0 if that is asked for,
// and OMP_NUM_THREADS where that is not set. Then `network`, NAME=VALUE, in the place of what is
// inherited, and TORCH_NCCL_ASYNC_ERROR_HANDLING=1 where it is not set.
std::vector<std::string> WorkerEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place,
                                       const std::vector<std::string>& network);

// The same for a parked worker: nothing of rank and round, and DDPRUN_PARKED=1.
std::vector<std::string> ParkedEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place);

// What the workers of a node with that place find in every round: nothing of rank and round.
std::vector<std::string> CommonEnviron(const std::vector<std::string>& inherited,
                                       const Place& place);

// This process's own variables.
std::vector<std::string> OwnEnviron();

// ---- The interface of the workers

// The interface of this machine that has the address (or name). Absent: none has, as
// behind NAT, or only the loopback interface has.
std::optional<Interface> InterfaceOf(const std::string& address);

// Whether a file of NCCL's own (NCCL_CONF_FILE, ~/.nccl.conf, /etc/nccl.conf) names interfaces: a
// variable would overrule it.
bool NcclConfNamesInterfaces(const GetVariable& get_variable);

// NAME=VALUE for the workers' environment. Pure. Variables that the user has set are
// left out.
std::vector<std::string> InterfaceVariables(const Interface& interface,
                                            const GetVariable& get_variable,
                                            bool nccl_conf_names_interfaces);

}  // namespace ddprun
