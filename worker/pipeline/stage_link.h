// SPDX-License-Identifier: Apache-2.0
// A link from a stage to one of its neighbours, wherever that runs. Tensors are sent and received
// in order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace ddprun {

// So many sent tensors may wait for the neighbour; a further send waits for the first of them. It
// bounds the memory that they hold; the order of the actions (actions.h) needs none.
inline constexpr std::size_t kSendsInFlightMax = 4;

// For one thread. Everything that waits ends at the world's timeout at the latest, and throws
// std::runtime_error with one sentence that names the neighbour then, and when it has ended.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // Goes on while the tensor travels; nobody may write to it from now on. All tensors of one
  // direction and one `shape_key` have the same type and shape, which travel only once.
  virtual void StartSend(const at::Tensor& tensor, std::int64_t shape_key) = 0;

  // Makes room for the next tensor that the neighbour sends, under its key.
  virtual void StartReceive(std::int64_t shape_key) = 0;
  // That of the oldest StartReceive(), on this stage's device.
  virtual at::Tensor FinishReceive() = 0;

  // Waits until everything sent has left.
  virtual void FinishSends() = 0;
};

}  // namespace ddprun
