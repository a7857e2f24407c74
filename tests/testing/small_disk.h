// SPDX-License-Identifier: Apache-2.0
// A disk that is soon full: a folder with a small file system on it, for a process of its own.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace ddprun {

// Runs `body`, with its assertions, in a child process in which `folder` has `bytes` of space.
// False: this user may not mount.
inline bool RunOnSmallDisk(const std::string& folder, std::size_t bytes,
                           const std::function<void()>& body) {
  constexpr int kCannotMount = 2;
  const pid_t child = fork();
  if (child == 0) {
    const std::string size = "size=" + std::to_string(bytes);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("ddprun-test", folder.c_str(), "tmpfs", 0, size.c_str()) != 0)
      _exit(kCannotMount);
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotMount) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return true;
}

// Gives the folder of RunOnSmallDisk() 64 MiB, within its body.
inline bool EnlargeSmallDisk(const std::string& folder) {
  return mount("none", folder.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0;
}

}  // namespace ddprun
