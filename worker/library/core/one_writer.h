// SPDX-License-Identifier: Apache-2.0
// What keeps two Checkpoints apart: in one process, and in one folder.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "ddprun/world.h"
#include "worker/library/checkpoint/checkpoint_folder.h"
#include "worker/library/checkpoint/folder_lock.h"

namespace ddprun {

// Signals, the folder's lock and what is kept in memory are the process's. Throws
// std::invalid_argument while another one is there.
struct OneOfProcess {
  OneOfProcess();
  ~OneOfProcess() { exists = false; }
  OneOfProcess(const OneOfProcess&) = delete;
  OneOfProcess& operator=(const OneOfProcess&) = delete;

 private:
  static inline std::atomic<bool> exists = false;
};

// Makes the folder if it is not there. Throws CheckpointError if it cannot be made, or another run
// writes there.
std::unique_ptr<FolderLock> TakeFolder(const std::string& folder, const World& world,
                                       const Notify& notify);

}  // namespace ddprun
