// SPDX-License-Identifier: Apache-2.0
#include "ddprun/distributed_data_parallel.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "ddprun/detail/collectives.h"
#include "ddprun/detail/interrupt.h"
#include "worker/library/base/first_line.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/ddp/bucket_layout.h"
#include "worker/library/ddp/gradient_compression.h"
#include "worker/library/ddp/gradient_meter.h"
#include "worker/library/ddp/round_group.h"
#include "worker/library/ddp/shm_allreduce.h"
#include "worker/library/files/crc32c.h"

namespace ddprun {
namespace {

// Bucket size of the broadcasts of parameters and buffers, as in Python.
constexpr std::size_t kBroadcastBucketBytes = 250u << 20;

// A checksum of what must be alike on all ranks: names, types and shapes of parameters and buffers,
// in their order.
std::int64_t FingerprintOf(const torch::nn::Module& module) {
  std::string text;
  const auto add = [&text](const auto& named) {
    for (const auto& item : named)
      text += c10::str(item.key(), ' ', item.value().scalar_type(), ' ', item.value().sizes(), ' ',
                       item.value().requires_grad(), '\n');
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return Crc32c(text.data(), text.size());
}

// Whether all ranks give the same numbers.
bool AlikeOnAllRanks(World& world, const std::vector<std::int64_t>& numbers) {
  const at::Tensor all = world.AllGather(at::tensor(numbers, at::kLong));
  return at::equal(all, all.narrow(0, 0, 1).expand_as(all));
}

// c10d's own check compares with rank 0 and throws on the others alone, which leaves rank 0 waiting
// for them. So all ranks first find out together, then c10d's check says where the difference is.
void CheckAlike(World& world, const torch::nn::Module& module,
                const std::vector<at::Tensor>& parameters) {
  if (AlikeOnAllRanks(world, {FingerprintOf(module)})) return;
  try {
    c10d::verify_params_across_processes(world.group(), parameters, std::nullopt);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "the ranks' models differ: ", FirstLine(error));
  }
  TORCH_CHECK(false, "the ranks' models differ from rank ", world.rank(), "'s, which has ",
              parameters.size(), " parameters that need gradients; give all ranks the same model");
}

std::vector<at::Tensor> TrainableParameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters = UniqueParameters(module);
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  TORCH_CHECK(!parameters.empty(),
              "a model without parameters that need gradients cannot be trained");
  return parameters;
}

void BroadcastFromRankZero(World& world, std::vector<at::Tensor> tensors) {
  if (tensors.empty() || world.size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) tensor = tensor.detach();
  if (world.interrupt()) {
    BroadcastAll(world, tensors, /*root=*/0);
    return;
  }
  c10d::broadcast_coalesced(world.group(), tensors, kBroadcastBucketBytes, /*rank=*/0);
}

// True if all ranks began with the same seed: then nothing is sent.
bool SameBytesOnAllRanks(World& world, const std::vector<at::Tensor>& tensors) {
  std::uint32_t crc = 0;
  bool plain = true;
  for (const at::Tensor& tensor : tensors) {
    plain = plain && tensor.is_cpu() && tensor.is_non_overlapping_and_dense();
    if (!plain) break;
    crc = Crc32c(tensor.const_data_ptr(), tensor.nbytes(), crc);
  }
  return AlikeOnAllRanks(world, {plain ? 1 : 0, crc}) && plain;
}

// More would be announced than the node has room for.
std::int64_t SmallestSharedBucket(const std::vector<at::Tensor>& parameters) {
  std::size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) bytes += parameter.nbytes();
  return static_cast<std::int64_t>(bytes / (ShmGroup::kOpsMax / 2));
}

// Buckets made in its scope have gradients that share their memory, but are no views for autograd:
// Optimizer::zero_grad() detaches in place, which LibTorch refuses for a view.
using PlainViews = at::AutoDispatchBelowADInplaceOrView;

class SharedHook : public c10d::CppCommHookInterface<std::shared_ptr<ShmAllreduce>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_->Average(bucket);
  }
};

}  // namespace

void OnGradientsComputed(const at::Tensor& loss, std::function<void()> computed) {
  // The engine's callbacks run in the order in which they were queued, after the last gradient. The
  // reducer queues the one that waits when its last bucket is full; the loss' gradient comes first
  // of all.
  loss.register_hook([computed = std::move(computed)](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback(computed);
  });
}

void BroadcastBuffers(World& world, const torch::nn::Module& module) {
  if (world.size() == 1) return;
  for (auto& buffer : UniqueBuffers(module)) world.Broadcast(buffer, 0);
}

DistributedDataParallel::DistributedDataParallel(World& world, torch::nn::Module& module,
                                                 Options options)
    : world_(world),
      module_(module),
      options_(options),
      parameters_(TrainableParameters(module)),
      meter_(std::make_shared<GradientMeter>()),
      layout_(options.layout) {
  if (!options_.alike) {
    CheckAlike(world_, module_, parameters_);
    std::vector<at::Tensor> state = UniqueState(module_);
    if (world_.size() > 1 && !SameBytesOnAllRanks(world_, state))
      BroadcastFromRankZero(world_, std::move(state));
  }
  if (world_.size() == 1) return;
  if (options_.format == GradientFormat::kFull && options_.shared_memory) UseSharedMemory();
  MakeReducer();
}

// Not where the ranks do not share a machine, or the gradients are not what its kernel adds.
void DistributedDataParallel::UseSharedMemory() {
  std::size_t parameter_bytes = 0;
  for (const at::Tensor& parameter : parameters_) {
    if (!parameter.is_cpu() || parameter.scalar_type() != at::kFloat) return;
    parameter_bytes += parameter.nbytes();
  }
  const std::size_t bytes = ShmAllreduce::BytesFor(parameters_.size(), parameter_bytes);
  std::shared_ptr<ShmGroup> node =
      ShmGroup::Form(world_, bytes + ShmNotes::BytesFor(options_.note_bytes),
                     /*repeatable=*/at::globalContext().deterministicAlgorithms());
  if (!node) return;
  notes_ = std::make_unique<ShmNotes>(node, /*offset=*/bytes, options_.note_bytes);
  shm_allreduce_ = std::make_shared<ShmAllreduce>(std::move(node), bytes, world_.timeout(), meter_);
}

DistributedDataParallel::~DistributedDataParallel() = default;

bool DistributedDataParallel::BeginForward() {
  if (!reducer_ || !module_.is_training() || !at::GradMode::is_enabled()) return false;
  reducer_->prepare_for_forward();
  RebuildBuckets();
  if (options_.broadcast_buffers) SynchronizeBuffers();
  return true;
}

void DistributedDataParallel::EndForward(const Tensors& outputs) {
  // Only a search for unused parameters walks the graph from the outputs.
  reducer_->prepare_for_backward(options_.find_unused_parameters ? outputs : Tensors());
}

GradientTraffic DistributedDataParallel::traffic() const { return meter_->Read(); }

void DistributedDataParallel::EndBackward() {
  if (reducer_) RebuildBuckets();
}

// Once, and not before the first backward.
void DistributedDataParallel::RebuildBuckets() {
  if (buckets_rebuilt_) return;
  const PlainViews plain;
  buckets_rebuilt_ = reducer_->rebuild_buckets();
  if (buckets_rebuilt_ && shm_allreduce_) shm_allreduce_->Adopt(*reducer_);
}

BucketLayout DistributedDataParallel::Layout() const {
  if (!buckets_rebuilt_) return layout_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    places.emplace(parameters_[i].unsafeGetTensorImpl(), i);
  BucketLayout layout;
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    layout.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters())
      layout.back().push_back(places.at(parameter.unsafeGetTensorImpl()));
  }
  return layout;
}

void DistributedDataParallel::UseLayout(const BucketLayout& layout) {
  if (!reducer_ || buckets_rebuilt_ || layout == layout_) return;
  if (!IsLayoutOf(parameters_, BucketLimits(), layout)) return;
  layout_ = layout;
  reducer_.reset();  // a parameter has the hook of one
  MakeReducer();
}

std::vector<std::size_t> DistributedDataParallel::BucketLimits() const {
  const std::int64_t bucket_bytes =
      shm_allreduce_ ? std::max(options_.shared_bucket_bytes, SmallestSharedBucket(parameters_))
                     : options_.bucket_bytes;
  return {static_cast<std::size_t>(options_.first_bucket_bytes),
          static_cast<std::size_t>(bucket_bytes)};
}

void DistributedDataParallel::MakeReducer() {
  const std::vector<bool> sparse(parameters_.size(), false);
  // One bucket to begin with, since the first backward shows the order in which gradients come and
  // buckets are rebuilt after it.
  const std::vector<std::size_t> limits{std::numeric_limits<std::size_t>::max()};
  auto [buckets, unused] = c10d::compute_bucket_assignment_by_size(parameters_, limits, sparse);
  // Gradients come roughly in the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());
  if (!layout_.empty()) buckets = layout_;
  const std::vector<std::size_t> rebuilt = BucketLimits();
  const PlainViews plain;
  reducer_ = std::make_unique<c10d::Reducer>(
      parameters_, std::move(buckets), GroupForReducer(world_), sparse,
      static_cast<std::int64_t>(rebuilt[1]), options_.find_unused_parameters,
      options_.gradient_views,
      /*param_names=*/std::unordered_map<std::size_t, std::string>{},
      static_cast<std::int64_t>(rebuilt[0]),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});

  if (shm_allreduce_) {
    shm_allreduce_->Adopt(*reducer_);
    reducer_->register_comm_hook(std::make_unique<SharedHook>(shm_allreduce_));
  } else if (options_.format != GradientFormat::kFull || !world_.is_nccl()) {
    reducer_->register_comm_hook(MakeGroupHook(world_, options_.format, meter_));
  }
  // Otherwise the reducer's own all-reduce, which divides a gradient while it puts it into its
  // bucket.
}

void DistributedDataParallel::ZeroGrad() {
  // Without a gradient, backward puts the new one into the bucket and scales it in one pass,
  // instead of clearing the bucket and adding to it.
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void DistributedDataParallel::SynchronizeBuffers() {
  BroadcastFromRankZero(world_, UniqueBuffers(module_));
}

}  // namespace ddprun
