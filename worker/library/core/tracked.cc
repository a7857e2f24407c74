// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/tracked.h"

#include <torch/torch.h>

#include <map>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "ddprun/errors.h"
#include "worker/library/base/first_line.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/core/optimizer_state.h"
#include "worker/library/files/state_dict.h"

namespace ddprun {
namespace {

// The place is a protected member, and has no other way out.
struct SchedulePlace : torch::optim::LRScheduler {
  static unsigned& Of(torch::optim::LRScheduler& schedule) {
    return schedule.*&SchedulePlace::step_count_;
  }
};

StepsOf StepsOfOptimizer(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) == nullptr) return StepsOf::kStatefulOptimizer;
  for (auto& group : optimizer.param_groups()) {
    if (static_cast<torch::optim::SGDOptions&>(group.options()).momentum() == 0)
      return StepsOf::kStatelessOptimizer;
  }
  return StepsOf::kStatefulOptimizer;
}

template <typename Number>
TrackedThing NumberThing(const std::string& name, Number& number, at::ScalarType type) {
  return {.name = name,
          .read =
              [&number, type] {
                return NamedTensors{{"value", at::scalar_tensor(number, type)}};
              },
          .write =
              [&number](const NamedTensors& state) { number = state.at(0).second.item<Number>(); }};
}

}  // namespace

TrackedThing ThingOf(const std::string& name, torch::nn::Module& module) {
  return {
      .name = name,
      .read = [&module] { return StateDict(module); },
      .write = [&module](
                   const NamedTensors& tensors) { LoadTensors(module, tensors, "what was saved"); },
      .buffers = [&module] { return UniqueBuffers(module); },
      .parameters = [&module] { return UniqueParameters(module); }};
}

TrackedThing ThingOf(const std::string& name, torch::optim::Optimizer& optimizer) {
  ReadOptimizerState(optimizer);  // throws for one that is not known
  return {
      .name = name,
      .read = [&optimizer] { return ReadOptimizerState(optimizer); },
      .write = [&optimizer](const NamedTensors& state) { WriteOptimizerState(optimizer, state); },
      .steps = StepsOfOptimizer(optimizer)};
}

TrackedThing ThingOf(const std::string& name, torch::optim::LRScheduler& schedule) {
  return {.name = name,
          .read =
              [&schedule] {
                const auto place = static_cast<std::int64_t>(SchedulePlace::Of(schedule));
                return NamedTensors{{"place", at::scalar_tensor(place, at::kLong)}};
              },
          .write =
              [&schedule](const NamedTensors& state) {
                const auto place = state.at(0).second.item<std::int64_t>();
                SchedulePlace::Of(schedule) = static_cast<unsigned>(place);
              }};
}

TrackedThing ThingOf(const std::string& name, ShardedOptimizer& optimizer) {
  return {
      .name = name,
      .read = [&optimizer] { return GatherOptimizerState(optimizer); },
      .write = [&optimizer](const NamedTensors& state) { WriteOptimizerState(optimizer, state); },
      .divided = true,
      .steps = StepsOf::kStatefulOptimizer};
}

TrackedThing ThingOf(const std::string& name, std::int64_t& number) {
  return NumberThing(name, number, at::kLong);
}

TrackedThing ThingOf(const std::string& name, double& number) {
  return NumberThing(name, number, at::kDouble);
}

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

std::vector<at::Tensor> Tracked::Parameters() const {
  std::vector<at::Tensor> all;
  for (const TrackedThing& thing : things_) {
    for (const at::Tensor& parameter : thing.parameters()) all.push_back(parameter);
  }
  return Unique(all);
}

std::optional<std::int64_t> Tracked::OptimizerVersions() const {
  std::optional<std::int64_t> sum;
  for (const TrackedThing& thing : things_) {
    if (thing.steps == StepsOf::kNothing) continue;
    // Reading what is divided is a collective.
    if (thing.steps == StepsOf::kStatelessOptimizer || thing.divided) return std::nullopt;
    sum = sum.value_or(0);
    for (const auto& [name, tensor] : thing.read()) sum = *sum + 1 + tensor._version();
  }
  return sum;
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

bool Tracked::CopiesAll() const {
  int optimizers = 0;
  for (const TrackedThing& thing : things_) {
    if (thing.steps == StepsOf::kStatelessOptimizer) return true;
    if (thing.steps == StepsOf::kStatefulOptimizer) ++optimizers;
  }
  return optimizers > 1;
}

void Tracked::Mark() {
  const torch::NoGradGuard no_grad;
  marked_.clear();
  versions_.clear();
  const bool copies_all = CopiesAll();
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
  // An optimizer makes its state in its first step, which may write into nothing else that counts.
  if (!CopiesAll() && Read().size() != marked_.size()) return {};
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    if (marked_[i].second._version() != versions_[i]) return {};
  }
  return marked_;
}

}  // namespace ddprun
