// SPDX-License-Identifier: Apache-2.0
// Reads the zip archive that Python's torch.save() writes for a dict of tensors: the pickle
// data.pkl, and one record data/KEY for each storage (torch/serialization.py, _save;
// torch/_utils.py, _rebuild_tensor_v2). The file may come from anyone: nothing in it is called,
// every size, offset and stride is checked against the record that it refers to, and the memory
// used is bounded by the file's size.
#pragma once

#include <string>

#include "worker/files/named_tensors.h"

namespace ddprun {

// In the dict's order, on the CPU; tensors that share a storage in the file share it here. Throws
// std::runtime_error (c10::Error where LibTorch's reader of archives finds the damage) with one
// sentence that does not name the path.
NamedTensors ReadTorchArchive(const std::string& path);

}  // namespace ddprun
