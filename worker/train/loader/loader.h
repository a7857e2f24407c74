// SPDX-License-Identifier: Apache-2.0
// One pass over a data set in batches, which threads prepare ahead of time so that a step need not
// wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/library/math/epoch_plan.h"
#include "worker/train/data/damaged_samples.h"
#include "worker/train/data/dataset.h"

namespace ddprun {

// Batches that may be ready or in progress at a time. Two cover the step's jitter; more would only
// hold memory.
inline constexpr std::size_t kBatchesAheadMax = 3;

// Samples that a thread takes at a time, at most: all threads work on one batch, so that the first
// batch is there soon, and so that any number of threads finds work.
inline constexpr std::int64_t kSamplesAtATimeMax = 32;

struct Batch {
  at::Tensor images;          // float, N x C x H x W
  at::Tensor labels;          // int64, N
  double waited_seconds = 0;  // how long Next() had to wait for it
};

struct LoaderOptions {
  bool augment = false;
  AugmentOptions variation = {};  // where `augment` is set
  bool channels_last = false;
  bool pinned =
      false;  // page-locked memory, from which a copy to a CUDA device needs not be waited for
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::int64_t threads = 1;
  DamagedSamples* damaged = nullptr;  // null: Next() throws where a sample is damaged
};

class Loader {
 public:
  // The batches of a plan, for training. A rank that the end of a resumed epoch leaves without a
  // sample gets rank 0's first one instead, to take part in the step with a loss that counts
  // nothing. With `damaged` the next whole sample of the set takes a damaged one's place. `set`
  // must outlive the loader.
  Loader(const SampleSet& set, EpochPlan plan, LoaderOptions options);

  // These samples in this order, the last batch shorter if they do not divide, for evaluation. With
  // `damaged` a batch is without its damaged ones, and may be empty.
  Loader(const SampleSet& set, std::vector<std::int64_t> indices, std::int64_t batch_size,
         LoaderOptions options);

  ~Loader();  // stops the threads, also in the middle of a pass
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch in order; nothing after the last. Rethrows what went wrong in a thread when its
  // batch is due (DataError, out of memory), and again on every later call.
  std::optional<Batch> Next();

 private:
  using SamplesOf = std::function<std::vector<Sample>(std::int64_t batch)>;
  // A batch in the making. Its tensors are written without the lock, each part by one thread.
  struct Slot {
    Batch batch;
    std::vector<Sample> samples;
    std::int64_t begun = 0;  // samples that a thread has taken
    std::int64_t done = 0;
    std::int64_t filled = 0;    // places that the next whole sample has filled
    std::int64_t left_out = 0;  // places that are not to be used: their labels are kLeftOut
    std::exception_ptr error;
  };

  static constexpr std::int64_t kLeftOut = -1;

  Loader(const SampleSet& set, std::int64_t batches, SamplesOf samples_of, LoaderOptions options,
         bool fills);
  void Run();
  // Ends the threads.
  void Stop();
  Slot* SlotWithWork();  // null if there is none now
  // The next batch's. On the caller's thread: malloc returns the memory of other threads' arenas to
  // the kernel (base/keep_freed_memory.h).
  void AddSlot();
  // Counts as Slot does.
  struct Skipped {
    std::int64_t filled = 0;
    std::int64_t left_out = 0;
  };
  Skipped Fill(const Slot& slot, std::int64_t first, std::int64_t last) const;
  // The index of the sample that was written, or kLeftOut.
  std::int64_t Write(const Sample& sample, float* out) const;

  const SampleSet& set_;
  const std::int64_t batches_;
  const SamplesOf samples_of_;
  const bool fills_;  // the places of damaged samples
  const LoaderOptions options_;

  std::mutex mutex_;  // for all below
  std::condition_variable batch_ready_;
  std::condition_variable work_there_;
  std::deque<Slot> slots_;  // in order; a Slot stays where it is until it is taken from the front
  std::int64_t slots_made_ = 0;
  bool stopping_ = false;

  std::vector<std::thread> threads_;  // last, so that they start when everything else is there
};

}  // namespace ddprun
