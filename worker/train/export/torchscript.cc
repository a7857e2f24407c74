// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/torchscript.h"

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/serialization/export.h>

#include <stdexcept>

#include "worker/library/base/first_line.h"
#include "worker/library/files/atomic_file.h"
#include "worker/train/models/script_model.h"

namespace ddprun {
namespace {

// The same tree of modules with the same tensors, in TorchScript's types.
torch::jit::Module CopyTree(const torch::nn::Module& module, const std::string& name,
                            const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  torch::jit::Module copy(c10::QualifiedName("__torch__." + name), unit, /*shouldMangle=*/true);
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    copy.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    copy.register_parameter(item.key(), item.value(), /*is_buffer=*/true);
  for (const auto& child : module.named_children())
    copy.register_module(child.key(), CopyTree(*child.value(), "Module", unit));
  return copy;
}

torch::jit::Module Trace(ImageModel& model, const at::Tensor& example) {
  torch::jit::Module module =
      CopyTree(model, "Model", std::make_shared<torch::jit::CompilationUnit>());
  // The tracer recognises the module's tensors by identity and records each use as a look-up by
  // name.
  const auto forward = [&model](torch::jit::Stack inputs) -> torch::jit::Stack {
    return {model.forward(inputs.at(0).toTensor())};
  };
  const auto no_names = [](const at::Tensor&) { return std::string(); };
  const auto traced = torch::jit::tracer::trace({example}, forward, no_names, /*strict=*/true,
                                                /*force_outplace=*/true, &module, {"images"});
  // See _create_method_from_trace in torch/csrc/jit/python/script_init.cpp.
  torch::jit::Function* function = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), traced.first->graph);
  module.type()->addMethod(function);
  module.eval();
  return module;
}

}  // namespace

void SaveTorchScript(ImageModel& model, const at::Tensor& example, const std::string& path) {
  AtomicFile file(UserPath(path));
  try {
    const torch::NoGradGuard no_grad;
    const auto* script = dynamic_cast<const ScriptModel*>(&model);
    const auto module = script != nullptr ? script->script() : Trace(model, example);
    torch::jit::ExportModule(module, [&file](const void* data, std::size_t size) {
      file.Write(data, size);
      return size;
    });
  } catch (const c10::Error& error) {
    throw std::runtime_error(path + " cannot be written: " + FirstLine(error));
  }
  file.Commit();
}

}  // namespace ddprun
