// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/round_group.h"

#include <string>
#include <utility>
#include <vector>

#include "ddprun/detail/collectives.h"
#include "ddprun/detail/interrupt.h"

namespace ddprun {
namespace {

class RoundWork : public c10d::Work {
 public:
  RoundWork(const World& world, c10::intrusive_ptr<c10d::Work> work)
      : world_(world), work_(std::move(work)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool wait(std::chrono::milliseconds) override {
    Await(world_, work_);
    return true;
  }

 private:
  const World& world_;
  const c10::intrusive_ptr<c10d::Work> work_;
};

// Gradients go through a hook (ddp.cc), so the reducer calls no other collective.
class RoundGroup : public c10d::ProcessGroup {
 public:
  explicit RoundGroup(const World& world)
      : ProcessGroup(world.rank(), world.size()), world_(world) {}

  const std::string getBackendName() const override { return world_.group()->getBackendName(); }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return c10::make_intrusive<RoundWork>(world_, world_.group()->broadcast(tensors, options));
  }

 private:
  const World& world_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> GroupForReducer(const World& world) {
  if (!world.interrupt() || world.is_nccl()) return world.group();
  return c10::make_intrusive<RoundGroup>(world);
}

}  // namespace ddprun
