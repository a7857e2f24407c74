// SPDX-License-Identifier: Apache-2.0
// The output of `ddprun status`: a few aligned lines, or JSON; with --watch a screen that fits the
// terminal, or lines. Pure.
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

// ---- ddpctl status --watch

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

// At most `rows` lines of at most `columns` characters, without line ends. If not all nodes fit,
// those in trouble come first (away, stopping, silent), and the others are counted. `heading`: the
// first line. `trouble`: why the status is out of date; empty: it is not.
std::vector<std::string> StatusScreen(const ServiceStatus& status, const std::string& heading,
                                      const std::string& trouble, ScreenSize size);

// One line per run, without times, so that equal lines mean that nothing has happened.
std::vector<std::string> StatusLines(const ServiceStatus& status);

}  // namespace ddprun
