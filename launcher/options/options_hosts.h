// SPDX-License-Identifier: Apache-2.0
// Flags about starting every node of a run with one command. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/options/hosts_list.h"

namespace ddprun {

struct HostOptions {
  std::vector<HostEntry> hosts;      // of -H
  std::string hostfile;              // empty: none; is read by ReadHostfile()
  bool srun = false;                 // the nodes are those of the Slurm allocation
  std::string rsh;                   // empty: ssh
  std::string launch_agent;          // empty: the same path as here, else ddprun in PATH
  std::string wdir;                  // empty: the same folder as here
  std::vector<std::string> exports;  // "NAME" or "NAME=VALUE"
  bool has_nnodes = false;           // --nnodes was given: else it is the number of hosts
  bool has_nproc = false;            // so was --nproc-per-node: else the slots decide
  // Every other flag that was given, from wherever it came, as --flag=value for the nodes.
  std::vector<std::string> forwarded;

  // This ddprun is the head: it starts the nodes' ddpruns and runs no worker itself.
  bool asked() const { return !hosts.empty() || !hostfile.empty() || srun; }
};

extern const std::vector<Flag> kHostFlags;

// Also what contradicts the other flags.
HostOptions ReadHostOptions(Reader& reader, const Values& values);

}  // namespace ddprun
