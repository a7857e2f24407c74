// SPDX-License-Identifier: Apache-2.0
// What `ddpctl status --watch` shows: a screen that fits, or lines where there is none (pure).
#pragma once

#include <string>
#include <vector>

#include "rendezvous/client/control_client.h"

namespace ddprun {

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

// At most `rows` lines of at most `columns` characters, without line ends. Where not all nodes fit,
// those that one would look for come first (away, stopping, silent), and the others are counted.
// `heading`: the first line. `trouble`: why the status is not of now; empty: it is.
std::vector<std::string> StatusScreen(const ServiceStatus& status, const std::string& heading,
                                      const std::string& trouble, ScreenSize size);

// One line a run, without what changes by itself as time passes, so that equal lines mean that
// nothing happened.
std::vector<std::string> StatusLines(const ServiceStatus& status);

}  // namespace ddprun
