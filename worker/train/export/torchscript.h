// SPDX-License-Identifier: Apache-2.0
// Exports a model as TorchScript, for torch::jit::load() and Python's torch.jit.load().
#pragma once

#include <string>

#include "worker/train/models/models.h"

namespace ddprun {

// Traces `model`, which must be in evaluation mode on the CPU, and writes it. Parameters and
// buffers keep their names. `example` (N x C x height x width) defines the image size; the result
// accepts any batch size. The file is replaced atomically. Throws std::runtime_error that names the
// path.
void SaveTorchScript(ImageModel& model, const at::Tensor& example, const std::string& path);

}  // namespace ddprun
