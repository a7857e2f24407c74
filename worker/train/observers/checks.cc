// SPDX-License-Identifier: Apache-2.0
#include "worker/train/observers/checks.h"

#include <ATen/Functions.h>

#include <cmath>
#include <vector>

#include "ddprun/detail/checksum.h"
#include "worker/library/base/text.h"

namespace ddprun {
namespace {

[[noreturn]] void Diverged(const std::string& fact, const Config& config, const World& world) {
  throw TrainingError("rank " + std::to_string(world.rank()) + ": " + fact +
                      "; try a lower --lr than " + ToText(config, *FindSetting("lr")) +
                      (config.shared_blocks ? ", a longer --warmup-epochs or ten blocks of their "
                                              "own (without --shared-blocks)"
                                            : " or a longer --warmup-epochs"));
}

}  // namespace

void CheckFinite(double loss, std::int64_t step, std::int64_t epoch, const Config& config,
                 const World& world) {
  if (std::isfinite(loss)) return;
  Diverged(std::string("the loss is ") + (std::isnan(loss) ? "not a number" : "infinite") +
               " at step " + std::to_string(step) + " (epoch " + std::to_string(epoch) + ")",
           config, world);
}

void CheckParametersFinite(const ParallelStrategy& strategy, std::int64_t step,
                           const Config& config, const World& world) {
  if (step == 0) return;
  for (const at::Tensor& values : strategy.State()) {
    if (!at::isfinite(values).all().item<bool>())
      Diverged("parameters are not finite after step " + std::to_string(step), config, world);
  }
}

void CheckRanksAgree(const ParallelStrategy& strategy, World& world, Console& console) {
  const std::uint32_t own = Checksum(strategy.State());
  console.Line("parameters crc32 " + Hex(own));
  if (world.size() == 1) return;
  const at::Tensor gathered = world.AllGather(at::tensor({std::int64_t{own}}, at::kLong));
  const auto all = gathered.accessor<std::int64_t, 2>();
  // Ranks that are so many apart hold the same part of the model.
  const int stages = world.size() / strategy.shard().world_size;
  std::string differing;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all[rank][0] != all[rank % stages][0])
      differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!differing.empty()) {
    throw TrainingError(
        "the parameters of rank " + differing +
        " are not those of rank 0 after training; check these machines' memory and libraries");
  }
  if (world.rank() != 0) return;
  console.Line(stages == 1 ? "parameters equal on all ranks: crc32 " + Hex(own)
                           : "parameters equal on all ranks of each stage");
}

}  // namespace ddprun
