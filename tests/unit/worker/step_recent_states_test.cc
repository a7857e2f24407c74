// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/recent_states.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

// A state that is the number of steps, in tensors of several types, of which one is not contiguous.
class State {
 public:
  State() { Set(step_); }

  // The step after this one is queued, and changes the state.
  void Queue(RecentStates& recent) {
    recent.Keep({.place = {.position = {.step = step_, .consumed = 10 * step_}},
                 .counts = {.steps = 100 + step_}});
    Set(++step_);
  }
  void Set(std::int64_t value) {
    for (const at::Tensor& tensor : tensors_) at::Tensor(tensor).fill_(value);
  }
  bool Is(std::int64_t value) const {
    for (const at::Tensor& tensor : tensors_) {
      if (!tensor.eq(value).all().item<bool>()) return false;
    }
    return true;
  }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  std::int64_t step_ = 50;

 private:
  const std::vector<at::Tensor> tensors_ = {
      at::zeros({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast), at::zeros({}, at::kLong),
      at::zeros({5}), at::zeros({4}, at::kBFloat16)};
};

// 53 steps were queued, of which 52 has ended, or 51, or none.
TEST(RecentStates, GoBackToTheLatestStepThatHasEnded) {
  for (const std::int64_t ended : {52, 51, 50, 0}) {
    State state;
    RecentStates recent(state.tensors(), 3);
    for (int i = 0; i < 3; ++i) state.Queue(recent);
    state.Set(-1);  // what aborted collectives have left
    const auto then = recent.GoBackTo(ended);
    const std::int64_t step = std::max<std::int64_t>(ended, 50);
    ASSERT_TRUE(then.has_value()) << ended;
    EXPECT_EQ(then->place.position.step, step);
    EXPECT_EQ(then->place.position.consumed, 10 * step);
    EXPECT_EQ(then->counts.steps, 100 + step);
    EXPECT_TRUE(state.Is(step)) << ended;
  }
}

TEST(RecentStates, ChangeNothingWhereAllStepsHaveEnded) {
  State state;
  RecentStates recent(state.tensors(), 3);
  state.Set(7);
  EXPECT_FALSE(recent.GoBackTo(0).has_value()) << "no step was queued";
  for (int i = 0; i < 5; ++i) state.Queue(recent);
  EXPECT_FALSE(recent.GoBackTo(state.step_).has_value());
  EXPECT_TRUE(state.Is(55));
}

TEST(RecentStates, KeepSoManyAsTheHostIsAhead) {
  State state;
  RecentStates recent(state.tensors(), 3);
  for (int i = 0; i < 20; ++i) state.Queue(recent);
  EXPECT_EQ(recent.GoBackTo(67)->place.position.step, 67);
  EXPECT_TRUE(state.Is(67));
  EXPECT_THROW(recent.GoBackTo(66), c10::Error);
}

}  // namespace
}  // namespace ddprun
