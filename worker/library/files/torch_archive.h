// SPDX-License-Identifier: Apache-2.0
// Reads the file that Python's torch.save() writes for a dict of tensors, or for a dict that has
// one (torch_pickle.h): a zip archive of the pickle data.pkl and one record data/KEY for each
// storage, or, before PyTorch 1.6, a sequence of pickles and storages (torch/serialization.py,
// _save and _legacy_save). The file may come from anyone: nothing in it is called, every size,
// offset and stride is checked against the storage that it refers to, and the memory used is
// bounded by the file's size.
#pragma once

#include <string>
#include <string_view>

#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Whether a file that begins so is one that torch.save() wrote, or another zip archive.
bool IsTorchFile(std::string_view begin);

// In the dict's order, on the CPU; tensors that share a storage in the file share it here. Throws
// std::runtime_error (c10::Error where LibTorch's reader of archives finds the damage) with one
// sentence that does not name the path.
NamedTensors ReadTorchFile(const std::string& path);

}  // namespace ddprun
