// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/initial_weights.h"

#include <stdexcept>
#include <unordered_map>

#include "worker/library/files/state_dict.h"
#include "worker/train/export/model_file.h"

namespace ddprun {
namespace {

bool IsHeadOfOtherClasses(const at::Tensor& given, const at::Tensor& own) {
  return given.dim() == own.dim() && given.dim() > 0 && given.size(0) != own.size(0) &&
         given.sizes().slice(1) == own.sizes().slice(1);
}

}  // namespace

std::string LoadInitialWeights(ImageModel& model, const Config& config) {
  const std::string& path = config.init_from;
  const ModelFile file = ReadModelFile(path, {});
  const NamedTensors in_file = TensorsFor(model, file);
  std::unordered_map<std::string, at::Tensor> given(in_file.begin(), in_file.end());
  const std::string head = model.Parts().back().modules.back();
  std::int64_t other_classes = 0;
  for (const auto& [name, tensor] : StateDict(model)) {
    const auto found = given.find(name);
    if (found == given.end() || !name.starts_with(head + ".")) continue;
    if (!IsHeadOfOtherClasses(found->second, tensor)) continue;
    other_classes = found->second.size(0);
    found->second = tensor;
  }
  try {
    LoadTensors(model, {given.begin(), given.end()}, path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("--init-from " + std::string(error.what()) +
                             "; check --model and --stem");
  }
  std::string sentence = "starting from the weights in " + path;
  if (other_classes > 0) {
    sentence += ", but " + head + ", which is for " + std::to_string(other_classes) +
                " classes there, from random ones";
  }
  return sentence;
}

}  // namespace ddprun
