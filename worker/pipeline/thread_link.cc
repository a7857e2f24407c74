// SPDX-License-Identifier: Apache-2.0
#include "worker/pipeline/thread_link.h"

#include <stdexcept>

namespace ddprun {

bool ThreadChannel::Push(at::Tensor tensor, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_until(
      lock, deadline, [this] { return tensors_.size() < kSendsInFlightMax || closed_; });
  if (!in_time || closed_) return false;
  tensors_.push_back(std::move(tensor));
  changed_.notify_all();
  return true;
}

bool ThreadChannel::Pop(at::Tensor& tensor, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const bool in_time =
      changed_.wait_until(lock, deadline, [this] { return !tensors_.empty() || closed_; });
  if (!in_time || tensors_.empty()) return false;
  tensor = std::move(tensors_.front());
  tensors_.pop_front();
  changed_.notify_all();
  return true;
}

void ThreadChannel::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void ThreadLink::StartSend(const at::Tensor& tensor, std::int64_t) {
  if (out_->Push(tensor.detach(), std::chrono::steady_clock::now() + options_.timeout)) return;
  throw std::runtime_error(options_.peer_name +
                           " did not take a tensor; see what it said, or raise --timeout if it "
                           "was only slow");
}

at::Tensor ThreadLink::FinishReceive() {
  at::Tensor tensor;
  if (in_->Pop(tensor, std::chrono::steady_clock::now() + options_.timeout))
    return tensor.to(options_.device, /*non_blocking=*/true);
  throw std::runtime_error(options_.peer_name +
                           " did not send a tensor; see what it said, or raise --timeout if it "
                           "was only slow");
}

void ThreadLink::Close() {
  out_->Close();
  in_->Close();
}

}  // namespace ddprun
