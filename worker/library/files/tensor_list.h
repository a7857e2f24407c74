// SPDX-License-Identifier: Apache-2.0
// The list of tensors that one rank sends before their values: [[NAME, sizes, type], ...].
#pragma once

#include <ATen/ops/empty.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "worker/library/files/named_tensors.h"

namespace ddprun {

inline nlohmann::json TensorList(const NamedTensors& tensors) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors)
    list.push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  return list;
}

// A tensor as an entry of the list says, for the values to be received into.
inline at::Tensor EmptyOf(const nlohmann::json& entry, at::Device device) {
  const auto type = static_cast<at::ScalarType>(entry.at(2).get<int>());
  return at::empty(entry.at(1).get<std::vector<std::int64_t>>(),
                   at::TensorOptions(device).dtype(type));
}

}  // namespace ddprun
