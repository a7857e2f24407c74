// SPDX-License-Identifier: Apache-2.0
#include "worker/library/tracked.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "ddprun/errors.h"
#include "worker/base/first_line.h"
#include "worker/base/unique_tensors.h"

namespace ddprun {

void Tracked::Add(TrackedThing thing) {
  if (thing.name.empty() || thing.name.find('/') != std::string::npos)
    throw std::invalid_argument("Checkpoints cannot track \"" + thing.name +
                                "\": a name must not be empty or have a '/'");
  for (const TrackedThing& other : things_) {
    if (other.name == thing.name)
      throw std::invalid_argument("Checkpoints tracks \"" + thing.name +
                                  "\" twice; give each thing a name of its own");
  }
  things_.push_back(std::move(thing));
}

bool Tracked::divided() const {
  for (const TrackedThing& thing : things_) {
    if (thing.divided) return true;
  }
  return false;
}

std::string Tracked::Names() const {
  std::string names;
  for (const TrackedThing& thing : things_) names += (names.empty() ? "" : ", ") + thing.name;
  return names;
}

NamedTensors Tracked::Read() const {
  NamedTensors tensors;
  for (const TrackedThing& thing : things_) {
    for (const auto& [name, tensor] : thing.read())
      tensors.emplace_back(thing.name + "/" + name, tensor.detach());
  }
  return tensors;
}

void Tracked::Write(const NamedTensors& tensors, const std::string& source) {
  std::map<std::string, NamedTensors> parts;
  for (const TrackedThing& thing : things_) parts[thing.name];
  for (const auto& [name, tensor] : tensors) {
    const std::size_t slash = name.find('/');
    const auto part = parts.find(name.substr(0, slash));
    if (slash == std::string::npos || part == parts.end())
      throw CheckpointError(source + " has " + name +
                            ", which this program does not track; it is of another program");
    part->second.emplace_back(name.substr(slash + 1), tensor);
  }
  const torch::NoGradGuard no_grad;
  for (const TrackedThing& thing : things_) {
    const NamedTensors& part = parts[thing.name];
    if (part.empty() && !thing.divided && thing.read().empty()) continue;
    if (part.empty())
      throw CheckpointError(source + " has nothing of \"" + thing.name +
                            "\"; it is of another program");
    try {
      thing.write(part);
    } catch (const std::exception& error) {
      throw CheckpointError(source + " does not fit \"" + thing.name + "\": " + FirstLine(error));
    }
  }
}

const at::Tensor& Tracked::Copy(const at::Tensor& tensor, std::size_t& next) {
  if (next == copies_.size()) copies_.emplace_back();
  at::Tensor& copy = copies_[next++];
  if (copy.defined() && copy.sizes() == tensor.sizes() && copy.dtype() == tensor.dtype())
    copy.copy_(tensor);
  else  // an optimizer makes its state in its first step
    copy = tensor.detach().clone();
  return copy;
}

void Tracked::Mark() {
  const torch::NoGradGuard no_grad;
  marked_.clear();
  versions_.clear();
  const bool copies_all = std::count_if(things_.begin(), things_.end(),
                                        [](const auto& thing) { return thing.optimizer; }) > 1;
  std::size_t next = 0;
  for (const TrackedThing& thing : things_) {
    std::unordered_set<const c10::TensorImpl*> buffers;
    for (const at::Tensor& buffer : thing.buffers()) buffers.insert(buffer.unsafeGetTensorImpl());
    for (const auto& [name, tensor] : thing.read()) {
      const bool copied = copies_all || buffers.contains(tensor.unsafeGetTensorImpl());
      marked_.emplace_back(thing.name + "/" + name, copied ? Copy(tensor, next) : tensor.detach());
      versions_.push_back(marked_.back().second._version());
    }
  }
}

NamedTensors Tracked::Marked() const {
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    if (marked_[i].second._version() != versions_[i]) return {};
  }
  return marked_;
}

}  // namespace ddprun
