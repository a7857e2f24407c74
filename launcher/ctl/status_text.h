// SPDX-License-Identifier: Apache-2.0
// The output of `ddprun status`: a few aligned lines, or JSON (pure).
#pragma once

#include <string>
#include <vector>

#include "rendezvous/client/control_client.h"

namespace ddprun {

// `service`: "HOST:PORT", for people.
std::string StatusText(const ServiceStatus& status, const std::string& service);

// Parts: the name of a node's state; a run without its nodes; a table of nodes with its heading.
const char* StateName(NodeState state);
std::vector<std::string> RunLines(const RunStatus& run);
std::vector<std::string> NodeLines(const std::vector<const NodeStatus*>& nodes);

// One object in one line. STATUS.md documents its members; members are only added, never removed.
std::string StatusJson(const ServiceStatus& status, const std::string& service);

}  // namespace ddprun
