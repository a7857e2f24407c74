// SPDX-License-Identifier: Apache-2.0
// Files of weights as programs publish them.
#pragma once

#include <string>

#include "worker/library/files/named_tensors.h"
#include "worker/library/files/safetensors.h"

namespace ddprun {

// The file of weights in a folder that transformers or timm wrote: model.safetensors or
// pytorch_model.bin, or the index of one that is in several parts. Empty if there is none.
std::string WeightsIn(const std::string& folder);

// Whether `path` is no safetensors file by its content or name: one that torch.save() wrote, or an
// index (*.index.json).
bool IsTorchOrIndex(const std::string& path);

// As SafetensorsFile(), but names what a file is instead, if that is known. Throws
// std::runtime_error with one sentence that names the path.
SafetensorsFile OpenSafetensors(const std::string& path);

// The tensors of a file that torch.save() wrote, of a .safetensors file, or of all files that an
// index names. Throws std::runtime_error with one sentence that names the path.
NamedTensors ReadWeights(const std::string& path);

}  // namespace ddprun
