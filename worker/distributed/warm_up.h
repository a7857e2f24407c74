// SPDX-License-Identifier: Apache-2.0
// Work that goes on by itself from the start of a world on, until somebody needs it done: the first
// NCCL communicator is made while this rank makes its model.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>

namespace ddprun {

class WarmUp {
 public:
  // `work` begins at once on a thread of its own. It must hold what it uses: where this ends before
  // it, it goes on alone. `name` is what a person reads of it: "NCCL's first communicator".
  WarmUp(std::string name, std::chrono::milliseconds limit, std::function<void()> work);
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  // Returns when the work is done, at once from the second time on; from any thread. Throws what it
  // threw, each time, and std::runtime_error with one sentence once the limit is over, which counts
  // from the constructor.
  void Wait();

 private:
  const std::string name_;
  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point deadline_;
  std::shared_future<void> done_;
};

}  // namespace ddprun
