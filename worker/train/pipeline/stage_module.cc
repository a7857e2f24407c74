// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/stage_module.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "worker/library/base/unique_tensors.h"

namespace ddprun {
namespace {

// The tensors of `all` that are in `wanted`, each under the first of its names.
template <typename Named>
NamedTensors Pick(const Named& all, TensorSet wanted) {
  NamedTensors picked;
  for (const auto& item : all) {
    if (wanted.erase(item.value().unsafeGetTensorImpl()) > 0)
      picked.emplace_back(item.key(), item.value());
  }
  return picked;
}

void ExpectAllOnce(const ImageModel& model,
                   const std::vector<std::shared_ptr<StageModule>>& stages) {
  std::size_t owned = 0;
  for (const auto& stage : stages)
    owned += stage->own_parameters().size() + stage->own_buffers().size();
  if (owned != UniqueParameters(model).size() + UniqueBuffers(model).size())
    throw std::logic_error("a model's Parts() do not name each of its children once");
}

}  // namespace

StageModule::StageModule(ImageModel& model, std::size_t first, std::size_t end) {
  const std::vector<ModelPart> all = model.Parts();
  parts_.assign(all.begin() + static_cast<std::ptrdiff_t>(first),
                all.begin() + static_cast<std::ptrdiff_t>(end));
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const ModelPart& part : parts_) {
    for (std::string name : part.modules) {
      const auto* child = modules.find(name);
      if (child == nullptr)
        throw std::logic_error("a model's part names " + name + ", which it has not");
      std::replace(name.begin(), name.end(), '.', '_');  // a registered name must have no dots
      register_module(name, *child);
    }
  }
  parameters_ = Pick(model.named_parameters(), SetOf(parameters()));
  buffers_ = Pick(model.named_buffers(), SetOf(buffers()));
}

at::Tensor StageModule::forward(at::Tensor input) {
  for (const ModelPart& part : parts_) input = part.forward(input);
  return input;
}

std::vector<std::shared_ptr<StageModule>> CutIntoStages(ImageModel& model,
                                                        const std::vector<std::size_t>& cuts) {
  const std::size_t parts = model.Parts().size();
  std::vector<std::shared_ptr<StageModule>> stages;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    stages.push_back(
        std::make_shared<StageModule>(model, cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : parts));
  }
  ExpectAllOnce(model, stages);
  return stages;
}

void Release(StageModule& stage) {
  const torch::NoGradGuard no_grad;
  for (const NamedTensors* tensors : {&stage.own_parameters(), &stage.own_buffers()}) {
    for (const auto& [name, tensor] : *tensors) tensor.set_data(at::empty({0}, tensor.options()));
  }
}

void Restore(torch::nn::Module& model, const NamedTensors& values) {
  const torch::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> own;
  for (const auto& item : model.named_parameters()) own.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) own.emplace(item.key(), item.value());
  for (const auto& [name, value] : values) {
    const auto found = own.find(name);
    if (found != own.end()) found->second.set_data(value.to(found->second.device()));
  }
}

}  // namespace ddprun
