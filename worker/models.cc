// SPDX-License-Identifier: Apache-2.0
#include "worker/models.h"

#include <functional>
#include <stdexcept>
#include <utility>

#include "worker/netresdeep.h"
#include "worker/resnet.h"
#include "worker/unique_tensors.h"

namespace ddprun {
namespace {

using Factory = std::function<std::shared_ptr<ImageModel>(const ModelOptions&)>;

const std::vector<std::pair<std::string, Factory>>& Table() {
  static const std::vector<std::pair<std::string, Factory>> table = {
      {"netresdeep", MakeNetResDeep},
      {"resnet18", MakeResNet18},
      {"resnet34", MakeResNet34},
      {"resnet50", MakeResNet50},
  };
  return table;
}

}  // namespace

std::shared_ptr<ImageModel> MakeModel(const std::string& name, const ModelOptions& options) {
  std::string names;
  for (const auto& [known, factory] : Table()) {
    if (known == name) return factory(options);
    names += (names.empty() ? "" : ", ") + known;
  }
  throw std::invalid_argument("--model " + name + " is not known; choose one of " + names);
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const auto& entry : Table()) names.push_back(entry.first);
  return names;
}

void UseChannelsLast(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : UniqueParameters(module)) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace ddprun
