// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/bucket_layout.h"

#include <cstdint>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <tuple>

namespace ddprun {

bool IsLayoutOf(const std::vector<at::Tensor>& parameters, const std::vector<std::size_t>& limits,
                const BucketLayout& layout) {
  std::vector<bool> named(parameters.size(), false);
  std::vector<at::Tensor> in_order;
  std::vector<std::int64_t> order;
  for (const auto& bucket : layout) {
    for (const std::size_t parameter : bucket) {
      if (parameter >= parameters.size() || named[parameter]) return false;
      named[parameter] = true;
      in_order.push_back(parameters[parameter]);
      order.push_back(static_cast<std::int64_t>(parameter));
    }
  }
  if (order.empty() || order.size() != parameters.size()) return false;
  const std::vector<bool> sparse(parameters.size(), false);
  return std::get<0>(c10d::compute_bucket_assignment_by_size(in_order, limits, sparse, order)) ==
         layout;
}

}  // namespace ddprun
