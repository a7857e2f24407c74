// SPDX-License-Identifier: Apache-2.0
// One pass over a list of images in batches, made ahead by a thread of its own so that a step need
// not wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/augment.h"

namespace ddprun {

// How many batches may lie ready. Two cover the step's jitter; more would only hold memory.
inline constexpr std::size_t kBatchesAheadMax = 3;

struct Batch {
  at::Tensor images;  // float, N x C x H x W
  at::Tensor labels;  // int64, N
};

struct LoaderOptions {
  std::int64_t batch_size = 1;
  bool augment = false;
  bool channels_last = false;
  bool pinned =
      false;  // page-locked memory, from which a copy to a CUDA device needs not be waited for
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t rank = 0;
};

class Loader {
 public:
  // `writer` and `labels` must outlive the loader.
  Loader(const BatchWriter& writer, const at::Tensor& labels, std::vector<std::int64_t> indices,
         LoaderOptions options);
  ~Loader();  // stops the thread, also in the middle of a pass
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Batches in the order of the indices, the last one shorter if they do not divide; nothing after
  // the last. Rethrows what went wrong in the thread (out of memory).
  std::optional<Batch> Next();

 private:
  void Run();
  Batch Make(std::size_t first) const;

  const BatchWriter& writer_;
  const at::Tensor labels_;
  const std::vector<std::int64_t> indices_;
  const LoaderOptions options_;

  std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool finished_ = false;
  bool stopping_ = false;

  std::thread thread_;  // last, so that it starts when everything else is there
};

}  // namespace ddprun
