// SPDX-License-Identifier: Apache-2.0
// Records which images each step was made of, to find those behind a jump of the loss:
// samples-RANK.jsonl in --output-dir, a line {"step": 12, "epoch": 1, "images": [5, 77]} for each
// batch of this rank; steps and epochs count from 1. A resumed training appends to what the file
// holds up to the checkpoint, so the files of all ranks together hold exactly what the model has
// been trained with.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "worker/library/math/epoch_plan.h"

namespace ddprun {

class SampleLog {
 public:
  struct Options {
    std::string output_dir;
    int rank = 0;
    int world_size = 1;
    std::int64_t steps = 0;  // done when it begins
  };

  // Takes away what is said of later steps; rank 0 also in the files of ranks that are no more.
  // Throws std::runtime_error that names the file and the system's reason.
  explicit SampleLog(const Options& options);
  ~SampleLog();
  SampleLog(const SampleLog&) = delete;
  SampleLog& operator=(const SampleLog&) = delete;

  // Each line is in the file when this returns, whatever happens to the process then.
  void Add(std::int64_t step, std::int64_t epoch, const std::vector<Sample>& samples);

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace ddprun
