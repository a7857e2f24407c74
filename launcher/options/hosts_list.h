// SPDX-License-Identifier: Apache-2.0
// Parses lists of hosts as users and schedulers write them. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct HostEntry {
  std::string name;          // the argument of ssh: a name, an address, user@name
  std::optional<int> slots;  // workers; absent: not given
  bool operator==(const HostEntry&) const = default;
};

// "a:2,b:2", "node[01-04,7]:8", "[::1]:2". A host that is named again adds to its slots, one for
// each mention without a number. INVALID_ARGUMENT: one sentence that begins with `source`.
absl::StatusOr<std::vector<HostEntry>> ParseHosts(absl::string_view text,
                                                  const std::string& source);

// A hostfile: one host a line, as `host`, `host:2`, `host slots=2` (and max_slots=, which is for
// other programs), ranges too; # begins a comment.
absl::StatusOr<std::vector<HostEntry>> ParseHostfile(absl::string_view text,
                                                     const std::string& source);

// "node[01-03,7]-ib" -> node01-ib, node02-ib, node03-ib, node7-ib; several names parted by commas.
// Slurm's hostlist format.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view text,
                                                        const std::string& source);

// The host without a user before it: "alice@node1" -> "node1".
std::string WithoutUser(const std::string& name);

}  // namespace ddprun
