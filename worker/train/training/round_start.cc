// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/round_start.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "ddprun/detail/checksum.h"
#include "ddprun/detail/collectives.h"
#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/train/training/state_view.h"

namespace ddprun {
namespace {

std::vector<std::int64_t> Encode(const RankState& state) {
  const TrainingPlace& place = state.place;
  const BestEvaluation& best = place.best;
  return {state.has_state,
          place.position.step,
          place.position.epoch,
          place.position.consumed,
          place.reached_target,
          place.evaluation_due,
          best.step,
          std::bit_cast<std::int64_t>(best.accuracy),
          std::bit_cast<std::int64_t>(best.loss),
          best.since,
          std::bit_cast<std::int64_t>(best.epoch)};
}

RankState Decode(const at::Tensor& row) {
  const auto numbers = row.accessor<std::int64_t, 1>();
  return {.has_state = numbers[0] != 0,
          .place = {.position = {.step = numbers[1], .epoch = numbers[2], .consumed = numbers[3]},
                    .reached_target = numbers[4] != 0,
                    .evaluation_due = numbers[5] != 0,
                    .best = {.step = numbers[6],
                             .epoch = std::bit_cast<double>(numbers[10]),
                             .accuracy = std::bit_cast<double>(numbers[7]),
                             .loss = std::bit_cast<double>(numbers[8]),
                             .since = numbers[9]}}};
}

}  // namespace

RoundStart AgreeOnSource(World& world, const RankState& own) {
  const at::Tensor all = world.AllGather(at::tensor(Encode(own), at::kLong));
  std::vector<RankState> ranks;
  for (std::int64_t rank = 0; rank < world.size(); ++rank) ranks.push_back(Decode(all[rank]));
  return ChooseStart(ranks, world.rank());
}

RoundStart AgreeOnStart(World& world, KeptTraining& kept) {
  const RoundStart start = AgreeOnSource(world, {.has_state = kept.has_state, .place = kept.place});
  if (!start.goes_on) {
    // Parts that have not begun may be in any state.
    kept.parts.reset();
    kept.recent.reset();
    kept.layout = {};
    kept.agreed = {};
  }
  if (!start.sends) return start;
  nlohmann::json words;
  if (world.rank() == start.source) {
    words["buckets"] = kept.layout;
    words["training"] = kept.saved.training;
  }
  words = nlohmann::json::parse(world.BroadcastText(JsonText(words), start.source));
  words["buckets"].get_to(kept.layout);
  kept.saved.training = words["training"].get<std::string>();
  return start;
}

void ReceiveState(World& world, const RoundStart& start, KeptTraining& kept) {
  // A checkpoint of the step before may still be read from these tensors.
  if (kept.saved.writer) kept.saved.writer->WaitUntilCopied();
  // If the round ends before all has come, this rank has none.
  if (start.receives) kept.has_state = false;
  TrainingParts& parts = *kept.parts;
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : StateView(parts).UpTo(HeldBy::kOneForAll))
    tensors.push_back(tensor.detach());
  BroadcastAll(world, tensors, start.source);
  const at::Tensor sums =
      world.AllGather(at::tensor({static_cast<std::int64_t>(Checksum(tensors))}, at::kLong));
  if (!start.receives) return;
  const auto sent = sums[start.source].item<std::int64_t>();
  const auto received = sums[world.rank()].item<std::int64_t>();
  if (sent != received)
    throw std::runtime_error(
        "rank " + std::to_string(world.rank()) + " has received the state of step " +
        std::to_string(start.place.position.step) + " with the checksum " +
        Hex(static_cast<std::uint32_t>(received)) + ", but rank " + std::to_string(start.source) +
        " has sent " + Hex(static_cast<std::uint32_t>(sent)) +
        "; check the memory and the network of this machine");
  parts.WeightsChanged();
}

}  // namespace ddprun
