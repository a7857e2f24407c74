// SPDX-License-Identifier: Apache-2.0
#include "worker/ddp.h"

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "worker/first_line.h"
#include "worker/unique_tensors.h"

namespace ddprun {
namespace {

// Of the broadcasts of parameters and buffers; Python's number.
constexpr std::size_t kBroadcastBucketBytes = 250u << 20;

// FNV-1a over what must be alike on all ranks: names, types and shapes of parameters and buffers,
// in their order.
class Fingerprint {
 public:
  void Add(const std::string& text) {
    for (const char c : text + '\n')
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  void Add(const std::string& name, const at::Tensor& tensor) {
    Add(c10::str(name, ' ', tensor.scalar_type(), ' ', tensor.sizes(), ' ',
                 tensor.requires_grad()));
  }
  // Half of the bits: its negative must be a number too.
  std::int64_t value() const { return static_cast<std::int64_t>(value_ >> 2); }

 private:
  std::uint64_t value_ = 14695981039346656037ull;
};

Fingerprint FingerprintOf(const torch::nn::Module& module) {
  Fingerprint fingerprint;
  for (const auto& item : module.named_parameters()) fingerprint.Add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) fingerprint.Add(item.key(), item.value());
  return fingerprint;
}

// c10d's own check compares with rank 0 and throws on the others alone, which leaves rank 0 waiting
// for them. So all ranks first find out together, then c10d's check says where the difference is.
void CheckAlike(World& world, const torch::nn::Module& module,
                const std::vector<at::Tensor>& parameters) {
  const std::int64_t mine = FingerprintOf(module).value();
  std::vector<at::Tensor> extremes{at::tensor({mine, -mine}, at::kLong).to(world.device())};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  world.group()->allreduce(extremes, options)->wait();
  const at::Tensor seen = extremes[0].cpu();
  const bool alike = seen[0].item<std::int64_t>() == -seen[1].item<std::int64_t>();
  if (alike) return;
  try {
    c10d::verify_params_across_processes(world.group(), parameters, std::nullopt);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "the ranks' models differ: ", FirstLine(error));
  }
  TORCH_CHECK(
      false, "the ranks' models differ from rank ", world.rank(), "'s, which has ",
      parameters.size(),
      " parameters that need gradients; give all ranks the same --model and the same data set");
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
  c10d::broadcast_coalesced(world.group(), tensors, kBroadcastBucketBytes, /*rank=*/0);
}

std::unique_ptr<c10d::Reducer> MakeReducer(World& world, const std::vector<at::Tensor>& parameters,
                                           const DistributedDataParallel::Options& options) {
  const std::vector<bool> sparse(parameters.size(), false);
  // One bucket to begin with, since the first backward shows the order in which gradients come and
  // buckets are rebuilt after it. Where unused parameters forbid that, the buckets of the first
  // step are for good.
  const std::vector<std::size_t> limits =
      options.find_unused_parameters
          ? std::vector<std::size_t>{static_cast<std::size_t>(options.first_bucket_bytes),
                                     static_cast<std::size_t>(options.bucket_bytes)}
          : std::vector<std::size_t>{std::numeric_limits<std::size_t>::max()};
  auto [buckets, unused] = c10d::compute_bucket_assignment_by_size(parameters, limits, sparse);
  // Gradients come roughly in the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());
  return std::make_unique<c10d::Reducer>(
      parameters, std::move(buckets), world.group(), sparse, options.bucket_bytes,
      options.find_unused_parameters,
      /*gradient_as_bucket_view=*/true,
      /*param_names=*/std::unordered_map<std::size_t, std::string>{}, options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(World& world, torch::nn::Module& module,
                                                 Options options)
    : world_(world), module_(module), options_(options), parameters_(TrainableParameters(module)) {
  CheckAlike(world_, module_, parameters_);
  std::vector<at::Tensor> state = UniqueParameters(module_);
  for (const at::Tensor& buffer : UniqueBuffers(module_)) state.push_back(buffer);
  BroadcastFromRankZero(world_, std::move(state));
  reducer_ = MakeReducer(world_, parameters_, options_);
}

DistributedDataParallel::~DistributedDataParallel() = default;

at::Tensor DistributedDataParallel::Forward(const std::function<at::Tensor()>& forward) {
  if (!module_.is_training() || !at::GradMode::is_enabled()) return forward();
  reducer_->prepare_for_forward();
  if (!buckets_rebuilt_) buckets_rebuilt_ = reducer_->rebuild_buckets();
  if (options_.broadcast_buffers) SynchronizeBuffers();
  at::Tensor outputs = forward();
  // Only a search for unused parameters walks the graph from the outputs; without it none must be
  // given.
  reducer_->prepare_for_backward(options_.find_unused_parameters ? std::vector<at::Tensor>{outputs}
                                                                 : std::vector<at::Tensor>{});
  return outputs;
}

void DistributedDataParallel::ZeroGrad() {
  // Optimizer::zero_grad() would detach the gradients in place, which views forbid. Without a
  // gradient, backward puts the new one into the bucket and scales it in one pass, instead of
  // clearing the bucket and adding to it.
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void DistributedDataParallel::SynchronizeBuffers() {
  BroadcastFromRankZero(world_, UniqueBuffers(module_));
}

}  // namespace ddprun
