// SPDX-License-Identifier: Apache-2.0
// Work on a thread of its own, with a deadline: the first NCCL communicator is created while this
// rank creates its model.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>

namespace ddprun {

class BackgroundTask {
 public:
  // `work` begins at once on a thread of its own. It must own what it uses: it goes on if this
  // object is destroyed first. `name` is the subject of error sentences: "NCCL's first
  // communicator".
  BackgroundTask(std::string name, std::chrono::milliseconds limit, std::function<void()> work);
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Returns when the work is done, at once from the second time on; from any thread. Throws what it
  // threw, each time, and std::runtime_error with one sentence once the limit is over, which counts
  // from the constructor. Calls `check` every kCheckInterval meanwhile; what that throws, ends the
  // wait.
  static constexpr std::chrono::milliseconds kCheckInterval{20};
  void Wait(const std::function<void()>& check = [] {});

 private:
  const std::string name_;
  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point deadline_;
  std::shared_future<void> done_;
};

}  // namespace ddprun
