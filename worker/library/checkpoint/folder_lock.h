// SPDX-License-Identifier: Apache-2.0
// Allows one training at a time in a folder: a write lock on FOLDER/training.lock (fcntl's
// F_OFD_SETLK), which the kernel releases when the process ends, however it ends. As with flock()
// it belongs to the open file: another FolderLock of this process is kept out, too. Unlike flock()
// it is for those alone who may write the file: a user who may only read it cannot keep a training
// out. The file stays and names the holder, or the last one:
// {"run": "TORCHELASTIC_RUN_ID", "host": "HOST", "pid": 123}.
#pragma once

#include <chrono>
#include <string>

#include "worker/library/checkpoint/checkpoint_folder.h"

namespace ddprun {

class FolderLock {
 public:
  struct Options {
    std::string run;         // the launcher's name for the run; empty: it has given none
    bool restarted = false;  // the launcher has restarted the workers
    // How long a restarted training waits for the process that it takes the place of.
    std::chrono::milliseconds patience = std::chrono::seconds(30);
  };

  // Takes the lock of `folder`, which must be there. Throws std::runtime_error that names the
  // folder and the holder if another training has it; after a restart only if that is of another
  // run: if a process of the same run does not end in time, training goes on without the lock, and
  // `notify` is told. So it does where the file system has no locks, where this user may not write
  // the file, and where another process has locked it for reading.
  FolderLock(const std::string& folder, const Options& options, const Notify& notify);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return held_; }

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace ddprun
