// SPDX-License-Identifier: Apache-2.0
// The environment that an agent gives a worker: torchrun's names with torchrun's meanings, and a
// few of our own. Agent and worker otherwise share only signals, the exit status, the failure
// record and the unix socket.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

struct WorkerEnv {
  int rank = 0;                  // RANK
  int local_rank = 0;            // LOCAL_RANK
  int world_size = 1;            // WORLD_SIZE
  int local_world_size = 1;      // LOCAL_WORLD_SIZE
  int group_rank = 0;            // GROUP_RANK: the node's rank
  int group_world_size = 1;      // GROUP_WORLD_SIZE: number of nodes
  std::string role = "default";  // ROLE_NAME
  int role_rank = 0;             // ROLE_RANK: among the workers of that role
  int role_world_size = 1;       // ROLE_WORLD_SIZE
  std::string master_addr;       // MASTER_ADDR
  int master_port = 0;           // MASTER_PORT
  int restart_count = 0;         // TORCHELASTIC_RESTART_COUNT
  int max_restarts = 0;          // TORCHELASTIC_MAX_RESTARTS
  std::string run_id;            // TORCHELASTIC_RUN_ID
  std::string error_file;        // TORCHELASTIC_ERROR_FILE; empty: none
  // TORCHELASTIC_USE_AGENT_STORE: an agent serves torch's TCPStore at MASTER_ADDR:MASTER_PORT. If
  // not, rank 0 opens one there.
  bool agent_store = false;
  // Ours. Absent if the worker was not started by ddprun.
  std::string agent_socket;  // DDPRUN_AGENT_SOCKET: path of the agent's unix socket; empty: none
  std::string
      notify_socket;  // DDPRUN_NOTIFY_SOCKET: where it tells of its progress; empty: nowhere
  unsigned long long round = 0;  // DDPRUN_ROUND; 0: none
  bool one_round = false;        // DDPRUN_ONE_ROUND=1: neither restarts nor joins are allowed
  bool console_is_terminal =
      false;  // DDPRUN_CONSOLE_TERMINAL=1: the agent's output ends on a terminal
};

// All variables of `env`.
std::vector<std::pair<std::string, std::string>> ToEnviron(const WorkerEnv& env);

using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the variables that ToEnviron() writes. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
// required; the others have defaults (LOCAL_RANK: RANK on one node), so that a user can set the
// four by hand. If RANK is not set and mpirun or srun started this process, unset variables follow
// from theirs (foreign_launcher.h). Otherwise, with none of the four set, the result is a world of
// one. INVALID_ARGUMENT names the variable that is missing, not a number, or out of range.
absl::StatusOr<WorkerEnv> FromEnviron(const GetEnv& get_env);

// FromEnviron() over this process's own environment.
absl::StatusOr<WorkerEnv> FromProcessEnviron();

}  // namespace ddprun
