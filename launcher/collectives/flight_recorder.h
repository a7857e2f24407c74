// SPDX-License-Identifier: Apache-2.0
// Gets dumps of PyTorch's flight recorder from workers that cannot report where they are among
// their collectives: programs that are not Python, and processes that NCCL's watchdog has
// aborted. ProcessGroupNCCL makes a FIFO, looks at it once a second, and dumps when a byte comes;
// its watchdog dumps before it aborts.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "proto/collective.h"

namespace ddprun {

// Files of one worker. Empty: none.
struct FlightFiles {
  std::string dump;
  std::string pipe;
  bool own_dump = false;  // ddprun has named it, and removes it
  bool own_pipe = false;
};

// Where the files of an agent's workers lie. Other users can neither name them first nor read what
// is written to them.
struct FlightFolders {
  std::string dumps;
  std::string pipes;  // MakeSharedDir(); empty: there are none
};

// Adds to a worker's variables what makes PyTorch dump, unless they are set. `rank` is the worker's
// in the world, `name` is used for no other worker of the agent.
FlightFiles AddFlightRecorder(const FlightFolders& folders, const std::string& name, int rank,
                              std::vector<std::string>& environment);

// Removes those of ddprun's own.
void RemoveFlightFiles(const FlightFiles& files);

struct DumpQuestion {
  int local_rank = 0;
  std::string dump;
  std::string pipe;  // empty: what is there is taken
  // What is older belongs to an earlier round.
  std::chrono::system_clock::time_point since;
  std::string copy;  // a file that gets what was read, too; empty: none
};

using DumpedPlaces = std::map<int, CollectivePlace>;  // by local rank

// Asks all and reads what they write within `limit`; for a thread that may block. Without an entry:
// the worker does not listen, does not answer, or its dump cannot be read. `ended` is the local
// rank of a worker that has ended, or -1: without a dump of its own no other one is asked.
DumpedPlaces ReadDumps(const std::vector<DumpQuestion>& questions, std::chrono::milliseconds limit,
                       int ended);

}  // namespace ddprun
