// SPDX-License-Identifier: Apache-2.0
// A world of one rank on any device, without a store: nothing in it communicates.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/world.h"
#include "proto/worker_env.h"

namespace ddprun {

class LoneWorld : public World {
 public:
  explicit LoneWorld(at::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group = nullptr,
                     std::chrono::milliseconds step_timeout = kDefaultTimeout,
                     std::shared_ptr<Interrupt> interrupt = nullptr)
      : World(WorkerEnv{}, kDefaultTimeout, step_timeout, std::move(interrupt)),
        device_(device),
        group_(std::move(group)) {}

  at::Device device() const override { return device_; }
  const std::string& backend_name() const override { return name_; }
  const std::string& device_note() const override { return note_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }
  const c10::intrusive_ptr<c10d::Store>& store() const override { return store_; }
  void AllReduceSum(at::Tensor&) override {}
  void Broadcast(at::Tensor&, int) override {}
  void Barrier() override {}
  void ExpectPeersSoon(bool) override {}
  void Synchronize() override {}
  World& Subgroup(const std::string&, const std::vector<int>&) override { return *this; }
  void Shutdown() override {}

 private:
  const at::Device device_;
  const std::string name_ = "none";
  const std::string note_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace ddprun
