// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/pipeline_parallel.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <string>

#include "proto/json_text.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/files/tensor_list.h"
#include "worker/train/parallel/precision.h"

namespace ddprun {
namespace {

World& PipelineOf(World& world, int stages) {
  const int first = world.rank() / stages * stages;
  std::vector<int> ranks;
  for (int i = 0; i < stages; ++i) ranks.push_back(first + i);
  return world.Subgroup("pipeline", ranks);
}

World& ReplicasOf(World& world, int stages) {
  std::vector<int> ranks;
  for (int rank = world.rank() % stages; rank < world.size(); rank += stages) ranks.push_back(rank);
  return world.Subgroup("replicas", ranks);
}

// This rank's stage of rank 0's model; the others' memory is freed.
std::shared_ptr<StageModule> KeepStage(World& world, ImageModel& model,
                                       const std::vector<std::size_t>& cuts, int own) {
  {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& tensor : UniqueState(model)) {
      at::Tensor values = tensor.detach().contiguous();
      world.Broadcast(values, 0);
      tensor.copy_(values);
    }
  }
  const auto stages = CutIntoStages(model, cuts);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (static_cast<int>(i) != own) Release(*stages[i]);
  }
  return stages[static_cast<std::size_t>(own)];
}

std::int64_t LargestBytes(const NamedTensors& tensors) {
  std::size_t largest = 0;
  for (const auto& [name, tensor] : tensors) largest = std::max(largest, tensor.nbytes());
  return static_cast<std::int64_t>(largest);
}

// So many bytes on each rank's device. Throws c10::OutOfMemoryError on all ranks if one of them has
// not as many: the others would wait for it.
at::Tensor ScratchOnAll(World& pipeline, std::int64_t bytes) {
  at::Tensor scratch;
  try {
    scratch = at::empty({bytes}, at::TensorOptions(pipeline.device()).dtype(at::kByte));
  } catch (const c10::OutOfMemoryError&) {
    // The others are told first.
  }
  TORCH_CHECK_WITH(OutOfMemoryError, pipeline.OnAllRanks(scratch.defined()),
                   "a stage's device has no memory left for a tensor that is sent to rank 0");
  return scratch;
}

// The beginning of `scratch` as a tensor of that type and those sizes.
at::Tensor Beginning(const at::Tensor& scratch, at::ScalarType type, at::IntArrayRef sizes) {
  const std::int64_t bytes = c10::multiply_integers(sizes) * at::elementSize(type);
  return scratch.narrow(0, 0, bytes).view(type).view(sizes);
}

// The tensors of all stages on the first rank of `pipeline`: its own, and then the other ranks',
// rank by rank, on the CPU; nothing on the others. Through one tensor's memory, as a device may
// have none for all. All ranks of it must call it. Throws c10::OutOfMemoryError on all of them.
NamedTensors GatherOnFirst(World& pipeline, const NamedTensors& own) {
  constexpr int kTag = 0;
  const torch::NoGradGuard no_grad;
  at::Tensor largest = at::full({1}, LargestBytes(own), at::kLong);
  const std::int64_t bytes = pipeline.AllGather(largest).max().item<std::int64_t>();
  const std::vector<std::string> lists = pipeline.GatherTexts(JsonText(TensorList(own)));
  const at::Tensor scratch = ScratchOnAll(pipeline, bytes);
  if (pipeline.rank() != 0) {
    for (const auto& [name, tensor] : own) {
      if (tensor.numel() == 0) continue;
      std::vector<at::Tensor> sent{Beginning(scratch, tensor.scalar_type(), tensor.sizes())};
      sent[0].copy_(tensor.detach());
      pipeline.group()->send(sent, /*dstRank=*/0, kTag)->wait();
    }
    return {};
  }
  NamedTensors all = own;
  for (int rank = 1; rank < pipeline.size(); ++rank) {
    for (const auto& entry : nlohmann::json::parse(lists[static_cast<std::size_t>(rank)])) {
      at::Tensor values = EmptyOf(entry, at::kCPU);
      if (values.numel() > 0) {
        std::vector<at::Tensor> received{Beginning(scratch, values.scalar_type(), values.sizes())};
        pipeline.group()->recv(received, rank, kTag)->wait();
        values.copy_(received[0]);
      }
      all.emplace_back(entry.at(0).get<std::string>(), values);
    }
  }
  return all;
}

std::string StageName(const World& world, const World& pipeline, int stage) {
  const int rank = world.rank() - pipeline.rank() + stage;
  return "stage " + std::to_string(stage) + " (rank " + std::to_string(rank) + ")";
}

std::unique_ptr<RankLink> LinkTo(World& world, World& pipeline, int peer) {
  if (peer < 0 || peer >= pipeline.size()) return nullptr;
  return std::make_unique<RankLink>(pipeline, peer, StageName(world, pipeline, peer));
}

}  // namespace

PipelineParallel::PipelineParallel(World& world, ImageModel& model, const PipelinePlan& plan,
                                   const std::vector<std::size_t>& cuts, StepOptions options)
    : world_(world),
      model_(model),
      options_(std::move(options)),
      pipeline_(PipelineOf(world, plan.stages)),
      replicas_(ReplicasOf(world, plan.stages)),
      module_(KeepStage(world, model, cuts, pipeline_.rank())),
      previous_(LinkTo(world, pipeline_, pipeline_.rank() - 1)),
      next_(LinkTo(world, pipeline_, pipeline_.rank() + 1)),
      stage_(MakeStage(plan)) {
  // Each rank keeps its own running statistics while training; evaluation takes the first model's.
  if (replicas_.size() > 1)
    ddp_.emplace(replicas_, *module_,
                 DistributedDataParallel::Options{.broadcast_buffers = false,
                                                  .format = options_.average.format});
}

Stage PipelineParallel::MakeStage(const PipelinePlan& plan) {
  return Stage({.index = pipeline_.rank(),
                .stages = plan.stages,
                .schedule = plan.schedule,
                .micro_batches = plan.micro_batches,
                .forward =
                    [this](const at::Tensor& input) {
                      const Autocast autocast(world_.device(), options_.autocast);
                      return module_->forward(input);
                    },
                .loss =
                    [this](const at::Tensor& scores, const at::Tensor& labels) {
                      const Autocast autocast(world_.device(), options_.autocast);
                      const at::Tensor loss = options_.loss(scores, labels);
                      options_.on_scores(scores, labels, loss);
                      return loss;
                    },
                .enter = [this](StepSection section) { options_.events.OnSection(section); }},
               previous_.get(), next_.get());
}

std::vector<at::Tensor> PipelineParallel::State() const { return UniqueState(*module_); }

void PipelineParallel::ZeroGrad() {
  if (ddp_) {
    ddp_->ZeroGrad();
    return;
  }
  for (const auto& entry : module_->own_parameters()) entry.second.mutable_grad().reset();
}

at::Tensor PipelineParallel::ForwardBackward(const Batch& batch, bool first, bool last) {
  if (first) ZeroGrad();
  Stage::Batch work{.samples = batch.labels.size(0),
                    .images = batch.images,
                    .labels = batch.labels,
                    .factor = batch.weight,
                    .scale = batch.scale};
  if (ddp_ && last) {
    // The last micro-batch's backward finds the sums of all before it, and averages them.
    work.before_last_backward = [this] { ddp_->Forward([] { return at::Tensor(); }); };
  }
  at::Tensor loss = stage_.Train(work);
  if (!loss.defined()) loss = at::zeros({}, at::TensorOptions(world_.device()).dtype(at::kFloat));
  options_.events.OnSection(StepSection::kGradients);
  ShareLoss(loss);
  return loss;
}

void PipelineParallel::ShareLoss(at::Tensor& loss) {
  const int last = pipeline_.size() - 1;
  try {
    pipeline_.Broadcast(loss, last);
  } catch (const std::exception& error) {
    throw NeighbourError(StageName(world_, pipeline_, stage_.is_last() ? last - 1 : last),
                         stage_.is_last() ? "take the loss" : "send the loss", error);
  }
}

void PipelineParallel::SumOverModel(at::Tensor value) { pipeline_.AllReduceSum(value); }

void PipelineParallel::Evaluate() {
  BroadcastBuffers(replicas_, *module_);
  module_->eval();
}

at::Tensor PipelineParallel::Scores(const at::Tensor& images) {
  return stage_.Scores(images.size(0), images);
}

NamedTensors PipelineParallel::Gather(const NamedTensors& own) {
  if (replicas_.rank() != 0) return {};
  return GatherOnFirst(pipeline_, own);
}

void PipelineParallel::GatherModel() {
  NamedTensors own = module_->own_parameters();
  for (const auto& buffer : module_->own_buffers()) own.push_back(buffer);
  NamedTensors all = Gather(own);
  if (all.empty()) return;
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(own.size()));
  Restore(model_, all);
}

}  // namespace ddprun
