// SPDX-License-Identifier: Apache-2.0
// A model as TorchScript, which torch::jit::load() and Python's torch.jit.load() run without this
// program.
#pragma once

#include <string>

#include "worker/models/models.h"

namespace ddprun {

// Traces `model`, which must be in evaluation mode on the CPU, and writes it. Parameters and
// buffers keep their names. `example` (N x C x height x width) gives the images' size; any number
// of images can be passed to the result. The file is the old one or the whole new one. Throws
// std::runtime_error that names the path.
void SaveTorchScript(ImageModel& model, const at::Tensor& example, const std::string& path);

}  // namespace ddprun
