// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <ctime>

namespace ddprun {

// While it exists, a file of this thread's that would grow beyond RLIMIT_FSIZE is an error of the
// call (EFBIG), as on a full disk, and no SIGXFSZ ends the process.
class FileSizeErrors {
 public:
  FileSizeErrors() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeErrors() {
    if (sigismember(&before_, SIGXFSZ) == 1) return;
    const std::timespec now{};
    while (sigtimedwait(&signal_, nullptr, &now) > 0) {
      // One that was held back would end the process now.
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeErrors(const FileSizeErrors&) = delete;
  FileSizeErrors& operator=(const FileSizeErrors&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
};

}  // namespace ddprun
