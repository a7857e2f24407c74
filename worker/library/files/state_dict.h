// SPDX-License-Identifier: Apache-2.0
// A model's parameters and buffers as a .pth file: what Python's torch.save(model.state_dict(),
// path) writes and torch.load(path), with its defaults, reads as a plain dict of CPU tensors.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Parameters and buffers under the names, and in the order, of Python's Module.state_dict(): a
// module's own, then its children's. The tensors are the module's own, not copies.
NamedTensors StateDict(const torch::nn::Module& module);

// Writes to a temporary file in the same folder, then fsync and rename: `path` is the old file or
// the whole new one. Throws std::runtime_error that names the path.
void SaveStateDict(const torch::nn::Module& module, const std::string& path);
void SaveStateDict(const NamedTensors& state, const std::string& path);

// What SaveStateDict() or Python wrote, in the file's order, on the CPU. Throws std::runtime_error
// with one sentence that names the path: not there, not of that format.
NamedTensors ReadStateDict(const std::string& path);

// Copies values into the module, whatever device it is on. Throws std::runtime_error "SOURCE does
// not fit the model; missing: ...", which names keys that are missing or too many and shapes that
// differ. The module is untouched then.
void LoadTensors(torch::nn::Module& module, const NamedTensors& tensors, const std::string& source);

// Both in one.
void LoadStateDict(torch::nn::Module& module, const std::string& path);

}  // namespace ddprun
