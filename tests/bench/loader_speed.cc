// SPDX-License-Identifier: Apache-2.0
// How many augmented, normalised 32x32 images a second the loader makes: one side of
// loader_vs_torch.py.
//
//   loader_speed RANK RANKS THREADS BATCH LAYOUT SECONDS
//
// The loader of one rank, with THREADS threads; LAYOUT `planar` or `channels-last`. Prints one
// number.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "worker/library/base/keep_freed_memory.h"
#include "worker/train/loader/loader.h"

namespace ddprun {
namespace {

struct Work {
  int rank;
  int ranks;
  std::int64_t threads;
  std::int64_t batch_size;
  bool channels_last;
  std::chrono::duration<double> time;
};

// Epoch after epoch, until the time is over.
double ImagesPerSecond(const Work& work) {
  const Dataset data = OpenDataset("synthetic", {.samples = 50'000});
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t images = 0;
  for (std::uint64_t epoch = 0;; ++epoch) {
    Loader loader(*data.train,
                  EpochPlan({.size = data.train->size(),
                             .shard = {work.rank, work.ranks},
                             .batch_size = work.batch_size,
                             .epoch = epoch}),
                  {.augment = true,
                   .channels_last = work.channels_last,
                   .epoch = epoch,
                   .threads = work.threads});
    while (const auto batch = loader.Next()) {
      images += batch->labels.size(0);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (passed > work.time) return static_cast<double>(images) / passed.count();
    }
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("usage: loader_speed RANK RANKS THREADS BATCH planar|channels-last SECONDS\n",
               stderr);
    return 2;
  }
  ddprun::KeepFreedMemory();  // as train does
  const ddprun::Work work{.rank = std::atoi(argv[1]),
                          .ranks = std::atoi(argv[2]),
                          .threads = std::atoll(argv[3]),
                          .batch_size = std::atoll(argv[4]),
                          .channels_last = std::string(argv[5]) == "channels-last",
                          .time = std::chrono::duration<double>(std::atof(argv[6]))};
  std::printf("%.0f\n", ddprun::ImagesPerSecond(work));
  return 0;
}
