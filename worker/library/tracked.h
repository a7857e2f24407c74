// SPDX-License-Identifier: Apache-2.0
// The things that a Checkpoints saves, each under a name, and whether they are those of the latest
// step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/files/named_tensors.h"

namespace ddprun {

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
  bool optimizer = false;
};

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

  // All is as after a complete step. Remembers it until the next Mark().
  void Mark();
  // What was there at the latest Mark(), buffers and numbers as they were then. Empty if anything
  // else has changed since: LibTorch counts what is written into a tensor, and an optimizer's step
  // does so. With several optimizers a step is complete only after the last of them: there all is a
  // copy, and never empty.
  NamedTensors Marked() const;

 private:
  // The next copy, after `next` others.
  const at::Tensor& Copy(const at::Tensor& tensor, std::size_t& next);

  std::vector<TrackedThing> things_;
  NamedTensors marked_;
  std::vector<std::int64_t> versions_;  // of each of them
  std::vector<at::Tensor> copies_;      // of what Mark() copies, in its order
};

}  // namespace ddprun
