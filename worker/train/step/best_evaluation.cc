// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/best_evaluation.h"

#include <cmath>

#include "worker/library/base/text.h"

namespace ddprun {

void BestEvaluation::Count(const Config& config, std::int64_t at, double its_accuracy,
                           double its_loss) {
  const bool by_loss = config.keep_best == KeepBest::kLoss;
  const bool better = step < 0 || (by_loss ? its_loss < loss : its_accuracy > accuracy);
  if (better && std::isfinite(its_loss))
    *this = BestEvaluation{.step = at, .accuracy = its_accuracy, .loss = its_loss};
  else
    ++since;
}

bool IsOutOfPatience(const Config& config, const BestEvaluation& best) {
  return config.patience > 0 && best.since >= config.patience;
}

std::string Describe(const Config& config, const BestEvaluation& best) {
  const std::string value = config.keep_best == KeepBest::kLoss
                                ? "loss of " + Fixed(best.loss, 4)
                                : "accuracy of " + Percent(best.accuracy);
  return value + " after step " + std::to_string(best.step);
}

}  // namespace ddprun
