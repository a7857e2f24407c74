// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/step_vote.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "ddprun/detail/collectives.h"
#include "worker/library/accelerator/accelerator.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{50};

c10::intrusive_ptr<c10d::Work> AllReduceMax(World& world, const at::Tensor& numbers) {
  std::vector<at::Tensor> tensors{numbers};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  // It may end after --profile has: the profiler's record of it would be gone by then.
  const at::DisableRecordFunctionGuard not_profiled;
  return world.group()->allreduce(tensors, options);
}

void CopyOut(const at::Tensor& tensor, Ballot::Numbers& numbers) {
  std::copy_n(tensor.const_data_ptr<int>(), numbers.size(), numbers.begin());
}

// In the host's memory, by Gloo: also where ranks share a GPU, so that nothing waits for that.
class HostBallot : public Ballot {
 public:
  explicit HostBallot(World& world) : world_(world) {}

  void Cast(const Numbers& own) override {
    numbers_ =
        at::tensor(at::IntArrayRef(std::vector<std::int64_t>(own.begin(), own.end())), at::kInt);
    work_ = AllReduceMax(world_, numbers_);
  }

  Numbers Read() override {
    Await(world_, std::exchange(work_, nullptr));
    Numbers numbers{};
    CopyOut(numbers_, numbers);
    return numbers;
  }

 private:
  World& world_;
  at::Tensor numbers_;
  c10::intrusive_ptr<c10d::Work> work_;
};

// By NCCL, on a stream of its own: neither host nor training waits for it, nor it for them.
class DeviceBallot : public Ballot {
 public:
  explicit DeviceBallot(World& world)
      : world_(world),
        stream_(c10::impl::VirtualGuardImpl(world.device().type())
                    .getStreamFromGlobalPool(world.device(), /*isHighPriority=*/false)) {}

  void Cast(const Numbers& own) override {
    const c10::StreamGuard guard(stream_);
    if (!pinned_.defined()) {
      pinned_ = at::empty({2, kNumbers}, at::TensorOptions(at::kInt).pinned_memory(true));
      numbers_ = at::empty({kNumbers}, at::TensorOptions(at::kInt).device(world_.device()));
    }
    std::copy(own.begin(), own.end(), pinned_.data_ptr<int>());
    numbers_.copy_(pinned_[0], /*non_blocking=*/true);
    AllReduceMax(world_, numbers_)->wait();  // the stream waits, not the host
    pinned_[1].copy_(numbers_, /*non_blocking=*/true);
    mark_ = LoadAccelerator().MakeMark();
  }

  Numbers Read() override {
    const Clock::time_point deadline = Clock::now() + world_.timeout();
    while (!mark_->Passed()) {
      world_.CheckRound();
      if (Clock::now() >= deadline)
        throw std::runtime_error("rank " + std::to_string(world_.rank()) +
                                 " has not heard in time whether the others go on; see what they "
                                 "say, or raise the timeout");
      std::this_thread::sleep_for(kPause);
    }
    world_.CheckRound();
    Numbers numbers{};
    CopyOut(pinned_[1], numbers);
    return numbers;
  }

 private:
  static constexpr auto kNumbers = static_cast<std::int64_t>(std::tuple_size_v<Numbers>);

  World& world_;
  const c10::Stream stream_;
  at::Tensor pinned_;  // own, and the greatest of all; undefined until the first is cast
  at::Tensor numbers_;
  std::unique_ptr<StreamMark> mark_;
};

std::unique_ptr<Ballot> MakeBallot(World& world) {
  if (world.size() == 1) return nullptr;
  if (!world.is_nccl()) return std::make_unique<HostBallot>(world);
  return std::make_unique<DeviceBallot>(world);
}

}  // namespace

StepVote::StepVote(World& world) : StepVote(MakeBallot(world), world.is_nccl()) {}

void StepVote::Begin(const Wishes& own, Time now) {
  wishes_.save = wishes_.save || own.save;
  wishes_.notice = std::max(wishes_.notice, own.notice);
  wishes_.stop = std::max(wishes_.stop, own.stop);
  if (ballot_ && cast_at_ < 0 && step_ >= next_) {
    ballot_->Cast(Cast(now));
    cast_at_ = step_;
  }
  ++step_;
}

// The third number is this rank's time of a step in microseconds, as the host's are, over the steps
// since the latest ballot; 0 at first.
Ballot::Numbers StepVote::Cast(Time now) {
  std::int64_t step_us = 0;
  if (step_ > timed_step_) {
    step_us = std::chrono::duration_cast<std::chrono::microseconds>(now - timed_).count() /
              (step_ - timed_step_);
  }
  timed_ = now;
  timed_step_ = step_;
  const Wishes wishes = std::exchange(wishes_, {});
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  const int save = wishes.save ? 1 : 0;
  return {wishes.notice > 0 ? 1 + wishes.notice : save, wishes.stop,
          static_cast<int>(std::min(step_us, kMax))};
}

StepVote::Wishes StepVote::End() {
  if (!ballot_) return std::exchange(wishes_, {});
  if (cast_at_ < 0 || step_ - 1 - cast_at_ < ReadAfter()) return {};
  const auto [save, stop, step_us] = ballot_->Read();
  SetInterval(std::chrono::microseconds(step_us));
  next_ = cast_at_ + interval_;
  cast_at_ = -1;
  // The save to come is what is wished for since.
  if (save != 0) wishes_.save = false;
  return {.save = save == 1, .notice = std::max(save - 1, 0), .stop = stop};
}

std::int64_t StepVote::ReadAfter() const {
  if (queued_) return std::min(interval_, kReadAfterSteps);
  return interval_ == 1 ? 0 : 1;
}

// From the slowest rank's time of a step, so that all ranks have the same interval. It grows by
// doubling: the first steps say little.
void StepVote::SetInterval(std::chrono::microseconds step) {
  if (step.count() == 0) return;
  const std::int64_t wanted = std::chrono::microseconds(kInterval) / step;
  interval_ = std::clamp<std::int64_t>(wanted, 1, std::min(2 * interval_, kIntervalSteps));
}

}  // namespace ddprun
