// SPDX-License-Identifier: Apache-2.0
// A link to a stage in another process: point-to-point messages of the process group (Gloo or
// NCCL).
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <map>
#include <stdexcept>
#include <string>

#include "ddprun/world.h"

namespace ddprun {

// "stage 1 (rank 3) did not send a tensor; ...": how what the process group threw is told.
std::runtime_error NeighbourError(const std::string& name, const std::string& doing,
                                  const std::exception& error);

// So many sent tensors may wait for the neighbour; a further send waits for the first of them. It
// bounds the memory that they hold; the order of the actions (actions.h) needs no limit.
inline constexpr std::size_t kSendsInFlightMax = 4;

// For one thread; tensors are sent and received in order. Every wait ends at the world's timeout at
// the latest, and throws std::runtime_error with one sentence that names the neighbour then, and
// when it has ended.
class RankLink {
 public:
  // `pipeline` has a rank for each stage; `peer` is the neighbour's in it. `peer_name` is how a
  // sentence calls it. All must outlive the link.
  RankLink(World& pipeline, int peer, std::string peer_name)
      : pipeline_(pipeline), peer_(peer), peer_name_(std::move(peer_name)) {}

  // Returns while the tensor travels; from now on nobody may write to it. All tensors of one
  // direction and one `shape_key` have the same type and shape, which are sent only once.
  void StartSend(const at::Tensor& tensor, std::int64_t shape_key);

  // Posts the receive of the next tensor that the neighbour sends, under its key.
  void StartReceive(std::int64_t shape_key);
  // The tensor of the oldest StartReceive(), on this stage's device.
  at::Tensor FinishReceive();

  // Waits until everything sent has left.
  void FinishSends();

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  struct Shape {
    at::ScalarType type = at::kFloat;
    std::vector<std::int64_t> sizes;
    bool channels_last = false;

    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct Transfer {
    Work work;
    at::Tensor tensor;  // kept until the transfer has ended
  };

  Work Send(const at::Tensor& tensor);
  Work Receive(const at::Tensor& tensor);
  void SendShape(const Shape& shape);
  Shape ReceiveShape();
  void Wait(c10d::Work& work, const char* doing);

  World& pipeline_;
  const int peer_;
  const std::string peer_name_;
  std::map<std::int64_t, Shape> sent_shapes_;  // by key
  std::map<std::int64_t, Shape> received_shapes_;
  std::deque<Transfer> sending_;
  std::deque<Transfer> receiving_;
};

}  // namespace ddprun
