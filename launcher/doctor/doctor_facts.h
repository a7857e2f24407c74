// SPDX-License-Identifier: Apache-2.0
// What `ddprun doctor` finds out about the machine it runs on. Nothing here waits for another node,
// and what cannot be found out is left at its default.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/options/options.h"

namespace ddprun {

// The limits, the kernel, GPUs and libraries, the environment, the program. `own_folder`: where
// ddprun is. Asks the Python of --python, if there is one.
void CollectMachineFacts(const Options& options, const std::string& own_folder, NodeFacts& facts);

// The interfaces and names. `facts.address` is known by then.
void CollectNetworkFacts(const Options& options, NodeFacts& facts);

// "python3 (pid 4711)", or what can be said of who listens at that TCP port here.
std::string PortHolder(int port);

// ---- Pure parts of it

// How many default routes share the lowest metric, in /proc/net/route and /proc/net/ipv6_route.
int CountDefaultRoutes(absl::string_view route, absl::string_view ipv6_route);

// The inode of the socket that listens at the port, in /proc/net/tcp or tcp6.
std::optional<std::string> ListeningInode(absl::string_view table, int port);

// "2.27.7" of a library's bytes; empty: it does not say.
std::string NcclVersionIn(absl::string_view bytes);

// "580.95.05" of /proc/driver/nvidia/version; empty: it does not say.
std::string DriverVersionIn(absl::string_view text);

// A variable as the other nodes may see it: its value if it concerns the libraries that work
// between nodes, else kHashMark and a hash. Absent: it differs by nature.
std::optional<std::string> ShownVariable(absl::string_view name, absl::string_view value);

}  // namespace ddprun
