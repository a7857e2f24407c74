// SPDX-License-Identifier: Apache-2.0
// Averages the reducer's buckets over the ranks of one machine in shared memory. Every rank
// averages one slice of each bucket for all: it reads the slice of all ranks and writes the mean to
// all. A thread does so while backward continues.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "worker/library/ddp/gradient_meter.h"
#include "worker/library/ddp/shm_group.h"

namespace c10d {
class Reducer;
}

namespace ddprun {

class ShmAllreduce {
 public:
  // The buckets lie in the first `bytes` of the node's memory: BytesFor(). `timeout` is how long
  // another rank's bucket is waited for.
  ShmAllreduce(std::shared_ptr<ShmGroup> node, std::size_t bytes, std::chrono::milliseconds timeout,
               std::shared_ptr<GradientMeter> meter);
  ~ShmAllreduce();  // stops the thread, also while it waits for another rank
  ShmAllreduce(const ShmAllreduce&) = delete;
  ShmAllreduce& operator=(const ShmAllreduce&) = delete;

  // For parameters of so many bytes.
  static std::size_t BytesFor(std::size_t parameters, std::size_t parameter_bytes);

  // Brings the buckets' memory into the node's. After the reducer is made, and again after it has
  // rebuilt its buckets; what lay in the ones before stays there until the next but one call.
  void Adopt(const c10d::Reducer& reducer);

  // `bucket` must have been adopted. The future is set once the bucket holds the mean, or holds a
  // PeerError.
  c10::intrusive_ptr<c10::ivalue::Future> Average(c10d::GradBucket& bucket);

 private:
  struct Job {
    std::uint32_t op = 0;
    at::Tensor buffer;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };

  void Run();
  void Do(const Job& job);

  const std::shared_ptr<ShmGroup> node_;
  const std::size_t bytes_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<GradientMeter> meter_;
  bool second_half_ = false;
  std::uint32_t next_op_ = 0;

  std::mutex mutex_;  // for what is below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopping_ = false;

  std::thread thread_;  // last, so that it starts when everything else is there
};

}  // namespace ddprun
