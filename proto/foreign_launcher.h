// SPDX-License-Identifier: Apache-2.0
// What mpirun and srun tell a process they have started, in torchrun's names. Pure.
//
// Sources: Open MPI's manual (mpirun, "ENVIRONMENT VARIABLES"); MPICH's Hydra, which sets PMI_RANK,
// PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS, as Intel MPI's mpirun does; srun's manual, "OUTPUT
// ENVIRONMENT VARIABLES".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proto/worker_env.h"

namespace ddprun {

struct ForeignLauncher {
  std::string name;  // "mpirun" or "srun"
  int world_size = 1;
  // RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE, and where they follow from it
  // GROUP_RANK, MASTER_ADDR and MASTER_PORT. What mpirun leaves open is rank 0's host, once there
  // are several.
  std::map<std::string, std::string> variables;
};

// Absent: neither has started this process, or its variables cannot be read.
std::optional<ForeignLauncher> FindForeignLauncher(const GetEnv& get_env);

// The first host of a list as Slurm writes them: "gpu[03,07-09],login" is gpu03. Empty if there is
// none.
std::string FirstHost(const std::string& hostlist);

// How many tasks the node of this index has: of "2(x3),1" three nodes have two, and the fourth one.
// Absent: the text says nothing of it.
std::optional<int> TasksOfNode(const std::string& tasks_per_node, int node);

}  // namespace ddprun
