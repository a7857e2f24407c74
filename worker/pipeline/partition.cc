// SPDX-License-Identifier: Apache-2.0
#include "worker/pipeline/partition.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace ddprun {

std::vector<std::size_t> BalancedCuts(const std::vector<double>& costs, std::size_t stages) {
  const std::size_t parts = costs.size();
  if (stages == 0 || stages > parts)
    throw std::invalid_argument("a model cannot be cut into more stages than it has parts");
  // least[s][i]: what the dearest stage costs when the parts from i on make s + 1 stages, and
  // next[s][i] where the second of these begins.
  const auto unreachable = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(stages, std::vector<double>(parts + 1, unreachable));
  std::vector<std::vector<std::size_t>> next(stages, std::vector<std::size_t>(parts + 1, parts));
  double rest = 0;
  for (std::size_t i = parts; i-- > 0;) least[0][i] = rest += costs[i];
  for (std::size_t s = 1; s < stages; ++s) {
    for (std::size_t i = 0; i + s < parts; ++i) {
      double own = 0;
      for (std::size_t j = i + 1; j + s <= parts; ++j) {
        own += costs[j - 1];
        const double dearest = std::max(own, least[s - 1][j]);
        if (dearest < least[s][i]) {
          least[s][i] = dearest;
          next[s][i] = j;
        }
      }
    }
  }
  std::vector<std::size_t> cuts{0};
  for (std::size_t s = stages - 1; s > 0; --s) cuts.push_back(next[s][cuts.back()]);
  return cuts;
}

}  // namespace ddprun
