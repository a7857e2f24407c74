// SPDX-License-Identifier: Apache-2.0
// Where this node is in the network, for --rank-order topology. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "launcher/command_line/settings.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// The place of that name of --topology-file. The hosts of a line are a hostlist: "n[1-8] rack1". A
// name matches with and without its domain. NOT_FOUND, INVALID_ARGUMENT: a sentence.
absl::StatusOr<std::string> PlaceInFile(absl::string_view text, const std::string& file,
                                        const std::string& host);

// The place from --topology-file, DDPRUN_TOPOLOGY (any text whose beginnings are shared by nodes
// near each other: "zone1/rack7") or SLURM_TOPOLOGY_ADDR, the first that is there; empty with
// another --rank-order. FAILED_PRECONDITION: none is.
absl::StatusOr<std::string> FindTopology(const Options& options, const std::string& host,
                                         const GetVariable& get_variable,
                                         const ReadFile& read_file);

}  // namespace ddprun
