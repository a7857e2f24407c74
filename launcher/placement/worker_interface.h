// SPDX-License-Identifier: Apache-2.0
// Over which interface the workers of several nodes talk: the one whose address this node's
// rendezvous goes out from, as that one is known to lead to the others. Left to themselves Gloo
// takes the address of the host's name, which is often 127.0.1.1 or another network, and NCCL the
// first interface that is up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/node/network.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

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
