// SPDX-License-Identifier: Apache-2.0
// What `ddprun status` prints: a few aligned lines for people, or JSON for programs (pure).
#pragma once

#include <string>
#include <vector>

#include "rendezvous/client/control_client.h"

namespace ddprun {

// `service`: "HOST:PORT", for people.
std::string StatusText(const ServiceStatus& status, const std::string& service);

// Parts of it. What a person calls a node's state; a run without its nodes; a table of nodes with
// its heading.
const char* StateName(NodeState state);
std::vector<std::string> RunLines(const RunStatus& run);
std::vector<std::string> NodeLines(const std::vector<const NodeStatus*>& nodes);

// One object in one line. Names and meanings are in STATUS.md; names are only ever added.
std::string StatusJson(const ServiceStatus& status, const std::string& service);

}  // namespace ddprun
