// SPDX-License-Identifier: Apache-2.0
// Opens the store in which the ranks of a world meet. Which one depends on what started the
// process.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "proto/worker_env.h"

namespace ddprun {

// Under ddprun: the service's, through the agent's unix socket. Under torchrun, srun, mpirun or by
// hand: a TCPStore at MASTER_ADDR:MASTER_PORT, which rank 0 serves unless torchrun's agent does;
// that one outlives a restart of the workers, so its keys get the restart count as a prefix.
// Alone: one in memory. Throws std::runtime_error with one sentence if the port is taken or nobody
// answers in time.
c10::intrusive_ptr<c10d::Store> OpenWorldStore(const WorkerEnv& env,
                                               std::chrono::milliseconds timeout);

// `store` as Python's init_process_group() hands it to the backend of the default group for
// `device` ("cpu", "cuda"), so that the keys are the same: the NCCL unique ID lies under
// default_pg/0//cuda//0.
c10::intrusive_ptr<c10d::Store> DefaultGroupStore(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& device);

// The key of the default group's first NCCL unique ID in the run's store: DefaultGroupStore()'s
// prefix and the number of the communicator (ProcessGroupNCCL::broadcastUniqueNCCLID).
inline constexpr const char* kNcclIdKey = "default_pg/0//cuda//0";

}  // namespace ddprun
