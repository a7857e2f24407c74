// SPDX-License-Identifier: Apache-2.0
// Rank 0's buffers (batch norm's running statistics) as they were after the latest step that
// counts, on every rank. Forward changes them before it is known whether the step will count, and
// each rank has its own, of which only rank 0's last: they must not end with that rank.
//
// On a GPU the module's own buffers become rank 0's in each step, as a part of it that a CUDA graph
// can hold, and what undoes a step undoes that: see RecentStates.
#pragma once

#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "ddprun/detail/shm_notes.h"
#include "ddprun/world.h"

namespace ddprun {

class BufferMirror {
 public:
  // The module must outlive the mirror.
  explicit BufferMirror(const torch::nn::Module& module);

  // The module's buffers are rank 0's now, on every rank.
  void Accept();

  // In a step, after its last forward: begins to send rank 0's. All ranks must call it. `notes`, if
  // there are any, have room for NoteBytes() at `offset`.
  void Send(World& world, ShmNotes* notes, std::size_t offset);
  // Before the step changes anything else: throws if they have not come. On a GPU the device waits.
  void Await(const World& world, const ShmNotes* notes, std::size_t offset);
  static std::size_t NoteBytes(const torch::nn::Module& module);
  // The step counts.
  void Commit();

  // Rank 0's buffers of the latest step that counts become the module's; a step under way does not
  // count, and what still arrives of it is ignored. On a GPU that is done elsewhere.
  void Restore();

 private:
  at::Tensor Packed() const;
  void Unpack(const at::Tensor& bytes);

  std::vector<at::Tensor> buffers_;  // as bytes
  bool in_place_ = false;
  at::Tensor valid_;  // bytes of all of them, as the next
  at::Tensor coming_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace ddprun
