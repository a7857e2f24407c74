// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/parameter_check.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/detail/checksum.h"
#include "ddprun/errors.h"

namespace ddprun {
namespace {

// The first rank whose number is not rank 0's; -1: none.
int FirstOther(const at::Tensor& numbers) {
  for (int rank = 1; rank < numbers.size(0); ++rank) {
    if (numbers[rank].item<std::int64_t>() != numbers[0].item<std::int64_t>()) return rank;
  }
  return -1;
}

}  // namespace

void CheckStepMade(const Tracked& tracked, std::optional<std::int64_t> before) {
  if (!before || tracked.OptimizerVersions() != before) return;
  double size = 0;
  for (const at::Tensor& parameter : tracked.Parameters()) {
    if (parameter.grad().defined()) size += parameter.grad().abs().sum().item<double>();
  }
  if (size == 0 || !std::isfinite(size)) return;
  throw std::logic_error(
      "Checkpoints::EndStep() came after a backward whose gradients no optimizer has applied; call "
      "it once for each step of the optimizer, directly after it");
}

void CheckParameters(World& world, const Tracked& tracked, std::int64_t step) {
  if (world.size() == 1) return;
  std::vector<std::int64_t> sums;
  for (const TrackedThing& thing : tracked.things())
    sums.push_back(static_cast<std::int64_t>(Checksum(thing.parameters())));
  if (sums.empty()) return;
  const at::Tensor all = world.AllGather(at::tensor(sums, at::kLong));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const int rank = FirstOther(all.select(1, static_cast<std::int64_t>(i)));
    if (rank < 0) continue;
    throw OwnError(
        "the parameters of \"" + tracked.things()[i].name + "\" differ between rank 0 and rank " +
        std::to_string(rank) + " after step " + std::to_string(step) +
        ": not all of their gradients were averaged; make the forward pass of each backward with "
        "DistributedDataParallel::Forward(), and set find_unused_parameters where a parameter has "
        "no part in a loss (or, where "
        "ranks may differ, check_parameters in Checkpoints::Options to false)");
  }
}

}  // namespace ddprun
