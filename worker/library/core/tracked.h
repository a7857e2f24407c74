// SPDX-License-Identifier: Apache-2.0
// The things that a Checkpoints saves, each under a name, and whether they are those of the latest
// step.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/zero_redundancy_optimizer.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Whether a thing is an optimizer, and what shows that it has made a step: LibTorch counts what is
// written into its state. It does not count how SGD writes into parameters, and without momentum
// SGD has no state.
enum class StepsOf { kNothing, kStatefulOptimizer, kStatelessOptimizer };

struct TrackedThing {
  std::string name;
  // Its tensors. Of a thing that is divided among the ranks: a collective, which gives them to rank
  // 0 alone.
  std::function<NamedTensors()> read;
  // Throws std::exception with one sentence if they do not fit.
  std::function<void(const NamedTensors&)> write;
  // What forward changes: copied at the end of each step. The same tensors are among read()'s.
  std::function<std::vector<at::Tensor>()> buffers = [] { return std::vector<at::Tensor>(); };
  // What has the same bits on all ranks after each step.
  std::function<std::vector<at::Tensor>()> parameters = [] { return std::vector<at::Tensor>(); };
  bool divided = false;
  StepsOf steps = StepsOf::kNothing;
};

TrackedThing ThingOf(const std::string& name, torch::nn::Module& module);
// Throws std::invalid_argument for an optimizer that is not known.
TrackedThing ThingOf(const std::string& name, torch::optim::Optimizer& optimizer);
TrackedThing ThingOf(const std::string& name, torch::optim::LRScheduler& schedule);
TrackedThing ThingOf(const std::string& name, ShardedOptimizer& optimizer);
TrackedThing ThingOf(const std::string& name, std::int64_t& number);
TrackedThing ThingOf(const std::string& name, double& number);

class Tracked {
 public:
  // Throws std::invalid_argument for a name that was given before, or has a '/'.
  void Add(TrackedThing thing);

  // "THING/NAME". All ranks must call it if any thing is divided.
  NamedTensors Read() const;
  // Throws CheckpointError that begins with `source` if they are not what is tracked.
  void Write(const NamedTensors& tensors, const std::string& source);
  bool divided() const;
  // "model, optimizer".
  std::string Names() const;
  const std::vector<TrackedThing>& things() const { return things_; }
  // The modules'.
  std::vector<at::Tensor> Parameters() const;
  // A number that changes with each step of an optimizer. Absent: there is none, or one whose steps
  // cannot be seen.
  std::optional<std::int64_t> OptimizerVersions() const;

  // All is as after a complete step. Remembers it until the next Mark().
  void Mark();
  // What was there at the latest Mark(), buffers and numbers as they were then. Empty if anything
  // else has changed since, as by an optimizer's step. With several optimizers, where a step is
  // complete only after the last of them, or one whose steps cannot be seen all is a copy, and
  // never empty.
  NamedTensors Marked() const;

 private:
  bool CopiesAll() const;
  // The next copy, after `next` others.
  const at::Tensor& Copy(const at::Tensor& tensor, std::size_t& next);

  std::vector<TrackedThing> things_;
  NamedTensors marked_;
  std::vector<std::int64_t> versions_;  // of each of them
  std::vector<at::Tensor> copies_;      // of what Mark() copies, in its order
};

}  // namespace ddprun
