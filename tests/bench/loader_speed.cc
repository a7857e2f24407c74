// SPDX-License-Identifier: Apache-2.0
// How many augmented, normalised 32x32 images a second the loader makes: one side of
// loader_vs_torch.py.
//
//   loader_speed RANKS THREADS BATCH LAYOUT SECONDS
//
// RANKS loaders of THREADS threads each in one process, LAYOUT `planar` or `channels-last`. Prints
// one number.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "worker/loader/loader.h"

namespace ddprun {
namespace {

struct Work {
  int ranks;
  std::int64_t threads;
  std::int64_t batch_size;
  bool channels_last;
  std::chrono::duration<double> time;
};

// Images of one rank, epoch after epoch, until the time is over.
std::int64_t Load(const Dataset& data, const Work& work, int rank) {
  const auto end = std::chrono::steady_clock::now() + work.time;
  std::int64_t images = 0;
  for (std::uint64_t epoch = 0;; ++epoch) {
    Loader loader(*data.train,
                  EpochPlan({.size = data.train->size(),
                             .shard = {rank, work.ranks},
                             .batch_size = work.batch_size,
                             .epoch = epoch}),
                  {.augment = true,
                   .channels_last = work.channels_last,
                   .epoch = epoch,
                   .threads = work.threads});
    while (const auto batch = loader.Next()) {
      images += batch->labels.size(0);
      if (std::chrono::steady_clock::now() > end) return images;
    }
  }
}

double ImagesPerSecond(const Work& work) {
  const Dataset data = OpenDataset("synthetic", {.samples = 50'000});
  std::vector<std::int64_t> images(static_cast<std::size_t>(work.ranks));
  std::vector<std::thread> ranks;
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < work.ranks; ++rank) {
    ranks.emplace_back(
        [&, rank] { images[static_cast<std::size_t>(rank)] = Load(data, work, rank); });
  }
  for (auto& rank : ranks) rank.join();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  std::int64_t all = 0;
  for (const std::int64_t count : images) all += count;
  return static_cast<double>(all) / passed.count();
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: loader_speed RANKS THREADS BATCH planar|channels-last SECONDS\n", stderr);
    return 2;
  }
  const ddprun::Work work{.ranks = std::atoi(argv[1]),
                          .threads = std::atoll(argv[2]),
                          .batch_size = std::atoll(argv[3]),
                          .channels_last = std::string(argv[4]) == "channels-last",
                          .time = std::chrono::duration<double>(std::atof(argv[5]))};
  std::printf("%.0f\n", ddprun::ImagesPerSecond(work));
  return 0;
}
