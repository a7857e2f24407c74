// SPDX-License-Identifier: Apache-2.0
// The stages of a pipeline in one process lie on several devices; ATen's operations on many tensors
// want them on one.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

inline at::Device DeviceOf(const at::Tensor& tensor) { return tensor.device(); }
inline at::Device DeviceOf(const std::pair<std::string, at::Tensor>& named) {
  return named.second.device();
}

// The tensors, named or not, of each device, in their order; the first one's device first.
template <typename Entry>
std::vector<std::vector<Entry>> ByDevice(const std::vector<Entry>& entries) {
  std::vector<std::vector<Entry>> groups;
  for (const Entry& entry : entries) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&entry](const auto& other) {
      return DeviceOf(other.front()) == DeviceOf(entry);
    });
    if (group == groups.end()) {
      groups.push_back({entry});
    } else {
      group->push_back(entry);
    }
  }
  return groups;
}

}  // namespace ddprun
