// SPDX-License-Identifier: Apache-2.0
// A link to a stage in another process: point-to-point messages of the process group (Gloo or
// NCCL).
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <map>
#include <stdexcept>
#include <string>

#include "worker/distributed/world.h"
#include "worker/pipeline/stage_link.h"

namespace ddprun {

// "stage 1 (rank 3) did not send a tensor; ...": how what the process group threw is told.
std::runtime_error NeighbourError(const std::string& name, const std::string& doing,
                                  const std::exception& error);

class RankLink : public StageLink {
 public:
  // `pipeline` has a rank for each stage; `peer` is the neighbour's in it. `peer_name` is how a
  // sentence calls it. All must outlive the link.
  RankLink(World& pipeline, int peer, std::string peer_name)
      : pipeline_(pipeline), peer_(peer), peer_name_(std::move(peer_name)) {}

  void StartSend(const at::Tensor& tensor, std::int64_t shape_key) override;
  void StartReceive(std::int64_t shape_key) override;
  at::Tensor FinishReceive() override;
  void FinishSends() override;

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
