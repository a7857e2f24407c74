// SPDX-License-Identifier: Apache-2.0
// A rank that is kept leaves a round in the middle of steps that a device was given, and goes on
// after the latest that is complete. The device is a stand-in: it computes at once, and ends its
// steps when it is told to.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/testing/lone_world.h"
#include "tests/testing/small_training.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/ddp/round_group.h"
#include "worker/train/replicas/recent_states.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kSteps = 40;
constexpr milliseconds kLimit{60'000};

// Ends the steps up to a number, and hangs in the next one.
class Device {
 public:
  std::unique_ptr<StreamMark> MakeMark() { return std::make_unique<Mark>(*this, ++queued_); }
  void EndUpTo(std::int64_t step) { ended_ = step; }
  std::int64_t queued() const { return queued_; }

 private:
  struct Mark : StreamMark {
    Mark(Device& of, std::int64_t number) : device(of), step(number) {}
    bool Passed() const override { return step <= device.ended_; }
    Device& device;
    const std::int64_t step;
  };

  std::atomic<std::int64_t> queued_ = 0;
  std::atomic<std::int64_t> ended_ = 0;
};

class KeptSteps : public testing::TestWithParam<Config> {
 protected:
  KeptSteps() : config_(Small(GetParam())) {}

  std::vector<at::Tensor> StateOf(Training& training) {
    std::vector<at::Tensor> tensors = UniqueState(*training.model);
    for (const auto& [name, tensor] : training.optimizer->State()) tensors.push_back(tensor);
    for (const auto& [name, tensor] : training.scaler.Tensors()) tensors.push_back(tensor);
    if (training.average) {
      for (const auto& [name, tensor] : training.average->State()) tensors.push_back(tensor);
    }
    return Unique(tensors);
  }

  // The steps from `first` on, each of a full batch that its number says.
  void Make(Training& training, TrainingLoop& step, std::int64_t first,
            const std::function<void(std::int64_t step)>& before) {
    const EpochPlan epoch = training.Epoch();
    step.BeginEpoch(epoch);
    for (std::int64_t number = first; number <= kSteps; ++number) {
      before(number);
      step.MakeStep({.first = number % 12, .count = 1}, 0.1 / static_cast<double>(number), number);
    }
    step.recorder().AwaitQueued();
  }

  // Until the round ends in the step after `ended`: the latest step that is complete, and what is
  // left of the state.
  std::int64_t MakeUntilRoundEnds(Training& training, World& world, RecentStates& recent,
                                  std::int64_t ended) {
    Device device;
    device.EndUpTo(ended);
    GraphSteps steps;
    // Aborted collectives let the device go through what is queued.
    const auto aborting = world.interrupt()->Register([&device] { device.EndUpTo(kSteps); });
    const auto closing = world.interrupt()->Register([&steps] { steps.Close(); });
    const auto step =
        training.MakeStep([this] { return std::make_unique<CountedGraph>(graphs_); },
                          RunAheadLimit([&device] { return device.MakeMark(); }, steps,
                                        {.who = "rank 0",
                                         .steps_ahead = RunAheadLimit::kStepsAheadIfKept,
                                         .check = [&world] { world.CheckRound(); }}));
    std::thread listener([&] {
      while (device.queued() < ended + 3) std::this_thread::yield();
      world.interrupt()->Trigger();
    });
    EXPECT_THROW(Make(training, *step, 1,
                      [&](std::int64_t number) {
                        recent.Keep({.place = {.position = {.step = number - 1}}});
                      }),
                 RoundOver);
    listener.join();
    EXPECT_TRUE(graphs_->AwaitNone(kLimit)) << "NCCL would wait for them";
    EXPECT_THROW(step->recorder().AwaitQueued(), RoundOver);
    return steps.ended();
  }

  const Config config_;
  const std::shared_ptr<Graphs> graphs_ = std::make_shared<Graphs>();
};

TEST_P(KeptSteps, GoOnAfterTheLatestThatIsComplete) {
  LoneWorld undisturbed_world(at::kCPU);
  Training undisturbed(config_, undisturbed_world);
  Make(undisturbed, *undisturbed.MakeStep(), 1, [](std::int64_t) {});

  // Among the steps that are queued one by one, and when there is a graph.
  for (const std::int64_t ended : {1, 2, 20}) {
    LoneWorld world(at::kCPU, nullptr, kLimit, std::make_shared<Interrupt>());
    Training training(config_, world);
    const std::vector<at::Tensor> state = StateOf(training);
    RecentStates recent(state, RunAheadLimit::kStepsAheadIfKept + 1);
    EXPECT_EQ(MakeUntilRoundEnds(training, world, recent, ended), ended);
    for (const at::Tensor& tensor : state) tensor.detach().fill_(77);
    const auto then = recent.GoBackTo(ended);
    ASSERT_TRUE(then.has_value());
    EXPECT_EQ(then->place.position.step, ended);

    Make(training, *training.MakeStep(), ended + 1, [](std::int64_t) {});
    const std::vector<at::Tensor> expected = StateOf(undisturbed);
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(at::equal(state[i], expected[i])) << "tensor " << i << ", after step " << ended;
  }
}

// A collective that no other rank comes to.
class SilentBackend : public c10d::Backend {
 public:
  SilentBackend() : Backend(/*rank=*/0, /*size=*/1) {}
  const std::string getBackendName() const override { return "silent"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&,
                                           const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<Never>();
  }

 private:
  struct Never : c10d::Work {
    bool wait(std::chrono::milliseconds) override {
      throw std::logic_error("this wait does not end with the round");
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future; }
    c10::intrusive_ptr<c10::ivalue::Future> future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  };
};

// c10d::Reducer waits for its broadcasts by itself.
TEST(GroupForReducer, EndsTheReducersOwnWaitsWithTheRound) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(0, 1);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<SilentBackend>());
  LoneWorld world(at::kCPU, group, kLimit, std::make_shared<Interrupt>());
  std::vector<at::Tensor> indices{at::zeros({3}, at::kInt)};
  const auto work = GroupForReducer(world)->broadcast(indices);
  std::thread listener([&world] { world.interrupt()->Trigger(); });
  EXPECT_THROW(work->wait(), RoundOver);
  listener.join();
  EXPECT_EQ(GroupForReducer(LoneWorld(at::kCPU, group)), group) << "nothing would end the wait";
}

INSTANTIATE_TEST_SUITE_P(All, KeptSteps,
                         testing::Values(Config{.model = kSmallModel},
                                         Config{.model = kSmallModel, .optimizer = "adamw"},
                                         Config{.model = "netresdeep", .ema_decay = 0.9}));

}  // namespace
}  // namespace ddprun
