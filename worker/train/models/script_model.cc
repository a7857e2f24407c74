// SPDX-License-Identifier: Apache-2.0
#include "worker/train/models/script_model.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "worker/library/base/first_line.h"

namespace ddprun {
namespace {

[[noreturn]] void Fail(const std::string& path, const std::string& fact) {
  throw std::invalid_argument("--model-file " + path + " " + fact);
}

torch::jit::Module Load(const std::string& path) {
  if (path.empty())
    throw std::invalid_argument(
        "--model torchscript needs --model-file, a file that torch.jit.save() wrote");
  try {
    return torch::jit::load(path, at::Device(at::kCPU));
  } catch (const c10::Error& error) {
    Fail(path,
         "cannot be read as TorchScript (" + FirstLine(error) +
             "); write it in Python with torch.jit.script(model).save(PATH), and give a state "
             "dict to --init-from");
  }
}

// The tensors of the script's modules, registered in `module` under their names. They are the
// script's own: what is done to them in place, its operations see.
void Mirror(const torch::jit::Module& script, torch::nn::Module& module) {
  for (const auto& item : script.named_parameters(/*recurse=*/false))
    module.register_parameter(item.name, item.value, item.value.requires_grad());
  for (const auto& item : script.named_buffers(/*recurse=*/false))
    module.register_buffer(item.name, item.value);
  for (const auto& item : script.named_children()) {
    auto child = std::make_shared<torch::nn::Module>(item.name);
    Mirror(item.value, *child);
    module.register_module(item.name, std::move(child));
  }
}

// An error of the interpreter begins with lines of the program and ends with what went wrong, or,
// with LibTorch 2.15, with the C++ frames of that.
std::string LastLine(const std::exception& error) {
  std::string text = error.what();
  text.resize(std::min(text.size(), text.find("\nException raised from ")));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const auto end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

}  // namespace

ScriptModel::ScriptModel(const ModelOptions& options) : script_(Load(options.model_file)) {
  Mirror(script_, *this);
  if (parameters().empty())
    Fail(options.model_file,
         "has no parameters to train; save the model before torch.jit.freeze or "
         "optimize_for_inference");
  CheckScores(options);
}

void ScriptModel::CheckScores(const ModelOptions& options) {
  const torch::NoGradGuard no_grad;
  eval();  // no statistics are taken of these images
  const std::vector<std::int64_t> shape = {2, options.in_channels, options.height, options.width};
  const std::string images = std::to_string(options.in_channels) + "x" +
                             std::to_string(options.height) + "x" + std::to_string(options.width);
  at::Tensor scores;
  try {
    scores = forward(at::zeros(shape));
  } catch (const std::exception& error) {
    Fail(options.model_file, "cannot take images of " + images + ": " + LastLine(error) +
                                 "; choose the --dataset and --input-size that it is for");
  }
  train();
  if (scores.dim() == 2 && scores.size(0) == 2 && scores.size(1) == options.classes) return;
  std::string sizes;
  for (const std::int64_t size : scores.sizes())
    sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
  Fail(options.model_file, "gives " + sizes + " scores for 2 images of " +
                               std::to_string(options.classes) +
                               " classes; it must give one for each image and class");
}

std::vector<ModelPart> ScriptModel::Parts() {
  std::vector<std::string> modules;
  for (const auto& child : named_children()) modules.push_back(child.key());
  if (modules.empty()) modules.emplace_back();
  return {{"script", std::move(modules), [this](const at::Tensor& images) {
             // Operation by operation: the same numbers from the first batch on, and no program
             // that is made anew while a step is recorded.
             const torch::jit::GraphOptimizerEnabledGuard as_written(false);
             return script_.forward({images}).toTensor();
           }}};
}

void ScriptModel::train(bool on) {
  ImageModel::train(on);
  script_.train(on);
}

namespace {

std::shared_ptr<ImageModel> MakeScriptModel(const ModelOptions& options) {
  return std::make_shared<ScriptModel>(options);
}

const bool kScriptModelAdded = Models().Add("torchscript", MakeScriptModel);

}  // namespace

}  // namespace ddprun
