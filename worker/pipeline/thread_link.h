// SPDX-License-Identifier: Apache-2.0
// A link to a stage in another thread of this process, on the same device or another: a queue for
// each direction.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "worker/pipeline/stage_link.h"

namespace ddprun {

// One direction: tensors in order, at most kSendsInFlightMax of them. For two threads.
class ThreadChannel {
 public:
  // Waits while it is full or empty; false if that lasted until the deadline or the other end has
  // closed.
  bool Push(at::Tensor tensor, std::chrono::steady_clock::time_point deadline);
  bool Pop(at::Tensor& tensor, std::chrono::steady_clock::time_point deadline);

  // Nothing will come or be taken any more: whoever waits need not.
  void Close();

 private:
  std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  std::deque<at::Tensor> tensors_;
  bool closed_ = false;
};

class ThreadLink : public StageLink {
 public:
  struct Options {
    at::Device device = at::kCPU;  // of this stage
    std::string peer_name;         // how a sentence calls the neighbour
    std::chrono::milliseconds timeout{0};
  };

  ThreadLink(std::shared_ptr<ThreadChannel> out, std::shared_ptr<ThreadChannel> in, Options options)
      : out_(std::move(out)), in_(std::move(in)), options_(std::move(options)) {}

  void StartSend(const at::Tensor& tensor, std::int64_t shape_key) override;
  void StartReceive(std::int64_t) override {}
  at::Tensor FinishReceive() override;
  void FinishSends() override {}

  // This stage has failed: its neighbour need not wait for it.
  void Close();

 private:
  const std::shared_ptr<ThreadChannel> out_;
  const std::shared_ptr<ThreadChannel> in_;
  const Options options_;
};

}  // namespace ddprun
