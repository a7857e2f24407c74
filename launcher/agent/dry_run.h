// SPDX-License-Identifier: Apache-2.0
// --dry-run: what this node would run, where it would meet the others, and the environment of its
// workers. Nothing is started; values that only the run determines are marked as such.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/processes/program.h"

namespace ddprun {

struct DryRun {
  Options options;
  std::vector<Program> programs;  // of SectionsOf(options)
  std::vector<Place> places;      // of the workers, by local rank
  std::string host;
  std::string topology;                // its place, of --rank-order topology
  bool endpoint_is_here = false;       // of --rdzv-endpoint
  std::string secret;                  // its source, in words
  std::vector<std::string> inherited;  // ddprun's own environment
};

// Pure.
std::string DryRunText(const DryRun& dry_run);

// The source of the secret, never the secret itself: "the file ~/... (--token-file)". Creates no
// file. `has_variable`: DDPRUN_TOKEN is set.
std::string SecretText(const Options& options, bool has_variable, const GetVariable& get_variable);

}  // namespace ddprun
