// SPDX-License-Identifier: Apache-2.0
// The output of `ddprun status`: a few aligned lines, or JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/client/control_client.h"

namespace ddprun {

// `service`: "HOST:PORT", for people.
std::string StatusText(const ServiceStatus& status, const std::string& service);

// Parts: the name of a node's state; a run without its nodes.
const char* StateName(NodeState state);
// `figures`: its progress and goodput too.
std::vector<std::string> RunLines(const RunStatus& run, bool figures = true);

// One object in one line. STATUS.md documents its members; members are only added, never removed.
std::string StatusJson(const ServiceStatus& status, const std::string& service);

// For --watch without a screen: one line per run, without times, so that equal lines mean that
// nothing has happened.
std::vector<std::string> StatusLines(const ServiceStatus& status);

}  // namespace ddprun
