// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/one_writer.h"

#include <stdexcept>
#include <system_error>

#include "ddprun/errors.h"
#include "proto/worker_env.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {

OneOfProcess::OneOfProcess() {
  if (exists.exchange(true))
    throw std::invalid_argument(
        "this process has a Checkpoints already, and can have one at a time; let that one track "
        "all, or destroy it first");
}

std::unique_ptr<FolderLock> TakeFolder(const std::string& folder, const World& world,
                                       const Notify& notify) {
  if (const std::error_code error = MakeFolder(folder))
    throw CheckpointError("the folder of the checkpoints, " + folder +
                          ", cannot be created: " + error.message());
  const WorkerEnv& env = world.env();
  try {
    return std::make_unique<FolderLock>(
        folder, FolderLock::Options{.run = env.run_id, .restarted = Restarted(env)}, notify);
  } catch (const std::runtime_error& taken) {
    throw CheckpointError(taken.what());
  }
}

}  // namespace ddprun
