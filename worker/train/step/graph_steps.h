// SPDX-License-Identifier: Apache-2.0
// The steps that the host has queued and the device has not ended, by number. c10d's flight
// recorder does not see the collectives that a CUDA graph replays, so this is all that can be said
// of a rank that waits in one. And it tells which steps were complete when a round ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "proto/collective.h"
#include "worker/library/accelerator/accelerator.h"

namespace ddprun {

class GraphSteps {
 public:
  // The step's graph has been queued, up to `mark`. One thread calls this and OldestEnded().
  void Add(std::int64_t step, std::unique_ptr<StreamMark> mark);

  // How many are not known to have ended. Does not ask the device.
  std::size_t queued() const;

  // Whether the oldest of them has ended, which is then no longer one of them. There must be one.
  // Does not wait.
  bool OldestEnded();

  // Asks the device a last time: steps that end from now on do not count, as their collectives are
  // about to be aborted. From any thread.
  void Close();

  // The latest step that has ended; 0: none.
  std::int64_t ended() const;

  // The oldest that has not ended, if any, and the latest that has, as kGraphStep with its number.
  // Asks the device; from any thread.
  CollectivePlace Place();

 private:
  struct Step {
    std::int64_t number = 0;
    std::unique_ptr<StreamMark> mark;
  };

  bool PopIfEnded();
  void PopAllEnded();

  mutable std::mutex mutex_;
  std::deque<Step> steps_;
  std::int64_t ended_ = 0;  // the latest; 0: none
  bool closed_ = false;
};

}  // namespace ddprun
