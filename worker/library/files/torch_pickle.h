// SPDX-License-Identifier: Apache-2.0
// The tensors of a pickle that torch.save() wrote (torch/_utils.py, _rebuild_tensor_v2). Nothing in
// it is called, and every size, offset and stride is checked against the storage that it refers to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/values/pickle.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

// A storage as the pickle refers to it.
struct TorchStorageId {
  std::string_view key;
  at::ScalarType type = at::kFloat;
  std::size_t elements = 0;

  // Throws std::runtime_error where that is beyond 64 bits.
  std::size_t bytes() const;
};

// Nothing for an id of something else. Throws std::runtime_error if it is damaged.
std::optional<TorchStorageId> StorageIdOf(const PicklePersistentId& id);

// Returns the bytes of the storage with the key, of any number. Throws std::runtime_error.
using FindTorchStorage = std::function<at::Storage(const std::string& key)>;

// A dict of tensors by name, or one that has such a dict as "state_dict", "model_state_dict",
// "model" or "net", as training programs save it beside other things. In the dict's order; tensors
// that share a storage in the file share it here. Throws std::runtime_error: one clause without a
// subject on what the pickle is instead, and what to save.
NamedTensors TensorsOf(const Pickle& pickle, const FindTorchStorage& find_storage);

}  // namespace ddprun
