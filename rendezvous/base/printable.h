// SPDX-License-Identifier: Apache-2.0
// Makes text from another process safe for a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Replaces control characters, which could move the cursor or forge a log line, by '?' and removes
// escape sequences such as colours. Tabs, UTF-8 and other bytes are kept.
std::string Printable(absl::string_view text);

// The same for text of several lines, which stay lines.
std::string PrintableLines(absl::string_view text);

}  // namespace ddprun
