// SPDX-License-Identifier: Apache-2.0
// What another process wrote, made fit for a person's terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Control characters, with which a name could move the cursor or forge a line of a log, become '?';
// sequences that set colours and the like are left out. Tabs and other bytes stay, and so does
// UTF-8.
std::string Printable(absl::string_view text);

}  // namespace ddprun
