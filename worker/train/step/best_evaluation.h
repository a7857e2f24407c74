// SPDX-License-Identifier: Apache-2.0
// The best of a training's evaluations so far, and how long it has been the best: what --keep-best
// keeps a checkpoint of and --patience counts. Pure. All ranks get the same results of an
// evaluation and so come to the same.
#pragma once

#include <cstdint>
#include <string>

#include "worker/train/config/config.h"

namespace ddprun {

struct BestEvaluation {
  std::int64_t step = -1;  // after which it was made; -1: none was
  double epoch = 0;     // epochs that were done by then; 0: an earlier version has not recorded it
  double accuracy = 0;  // a share
  double loss = 0;
  std::int64_t since = 0;  // evaluations since then, none of which was better

  // Counts the evaluation after step `at`, compared by the loss where `config` keeps the best of
  // it, else by the accuracy. The first of equals stays the best; one with a loss that is not
  // finite is no candidate.
  void Count(const Config& config, std::int64_t at, double its_accuracy, double its_loss);

  bool operator==(const BestEvaluation&) const = default;
};

// Whether as many evaluations as --patience says were no better than the best.
bool IsOutOfPatience(const Config& config, const BestEvaluation& best);

// "accuracy of 81.25 % after step 60", or the loss.
std::string Describe(const Config& config, const BestEvaluation& best);

}  // namespace ddprun
