// SPDX-License-Identifier: Apache-2.0
// What steps on a GPU must do, shown without one: that nothing reads from the device, that a step
// which hangs is given up in the order that NCCL needs, and that a warm-up leaves no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/testing/lone_world.h"
#include "tests/testing/small_training.h"
#include "worker/train/metrics/console.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/step/training_loop.h"
#include "worker/train/step/training_state.h"
#include "worker/train/training/training_parts.h"
#include "worker/train/training/warm_up.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// ---- A graph with collectives, as NCCL treats it
// -------------------------------------------------

class HungBackend : public c10d::Backend {
 public:
  explicit HungBackend(std::shared_ptr<Graphs> graphs)
      : Backend(/*rank=*/0, /*size=*/1), graphs_(std::move(graphs)) {}
  const std::string getBackendName() const override { return "hung"; }
  void abort() override { returned_ = graphs_->AwaitNone(milliseconds(60'000)); }
  bool returned() const { return returned_; }

 private:
  const std::shared_ptr<Graphs> graphs_;
  std::atomic<bool> returned_ = false;
};

c10::intrusive_ptr<c10d::ProcessGroup> GroupOf(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(0, 1);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  return group;
}

// A device that never comes so far.
struct NeverPassed : StreamMark {
  bool Passed() const override { return false; }
};

class HungStep : public testing::Test {
 protected:
  // Steps until one is given up.
  void TrainUntilItHangs(const MakeStepGraph& make_graph) {
    const auto group = GroupOf(backend_);
    LoneWorld world(at::kCPU, group, /*step_timeout=*/milliseconds(50));
    Training training(Small(), world);
    const EpochPlan epoch = training.Epoch();
    GraphSteps steps;
    const auto step = training.MakeStep(
        make_graph,
        RunAheadLimit([] { return std::make_unique<NeverPassed>(); }, steps, {.who = "rank 0"}));
    step->BeginEpoch(epoch);
    // Two forwards, each with its graph.
    for (int i = 0; i < 2 * static_cast<int>(RunAheadLimit::kStepsAhead); ++i) {
      step->recorder().UseForward(i < 5 ? 0 : 1);
      step->MakeStep({.first = i % 4, .count = 1}, 0.1, i + 1);
      most_ = std::max(most_, graphs_->alive());
    }
  }

  std::shared_ptr<Graphs> graphs_ = std::make_shared<Graphs>();
  c10::intrusive_ptr<HungBackend> backend_ = c10::make_intrusive<HungBackend>(graphs_);
  int most_ = 0;
};

TEST_F(HungStep, LosesItsGraphsBeforeItsCollectivesAreAborted) {
  EXPECT_THROW(TrainUntilItHangs([this] { return std::make_unique<CountedGraph>(graphs_); }),
               StepHangs);
  EXPECT_EQ(most_, 2) << "both forwards were captured";
  EXPECT_TRUE(backend_->returned());
  EXPECT_EQ(graphs_->alive(), 0);
}

// A loss is read while few steps are queued.
TEST_F(HungStep, IsGivenUpBeforeTheHostReadsFromIt) {
  LoneWorld world(at::kCPU, GroupOf(backend_), /*step_timeout=*/milliseconds(50));
  Training training(Small(), world);
  const EpochPlan epoch = training.Epoch();
  GraphSteps steps;
  const auto step = training.MakeStep(
      [this] { return std::make_unique<CountedGraph>(graphs_); },
      RunAheadLimit([] { return std::make_unique<NeverPassed>(); }, steps, {.who = "rank 0"}));
  step->BeginEpoch(epoch);
  for (int i = 0; i < 5; ++i) step->MakeStep({.first = i, .count = 1}, 0.1, i + 1);
  EXPECT_TRUE(step->recorder().is_graph());
  EXPECT_THROW(step->recorder().AwaitQueued(), StepHangs);
  EXPECT_TRUE(backend_->returned());
}

// The driver does not let go of a graph: the rank says why it ends all the same.
TEST_F(HungStep, IsGivenUpEvenIfTheAbortHangs) {
  graphs_->Add(1);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THROW(TrainUntilItHangs([this] { return std::make_unique<CountedGraph>(graphs_); }),
               StepHangs);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 6 * StepRecorder::kAbortLimit);
  EXPECT_FALSE(backend_->returned());
  graphs_->Add(-1);  // lets the thread go
}

// ---- A device of which nothing can be read
// -------------------------------------------------------

// Tensors on "meta" have no values: to read one on the host throws, as does a copy to it. The
// operations below have no meta kernel: they are run on zeros, of which the result's shape is kept.
at::Tensor Zeros(const at::Tensor& tensor) {
  if (!tensor.is_meta()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU))
      .zero_();
}

at::Tensor Shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

void OnZeros(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  for (c10::IValue& value : *stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = Zeros(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = Zeros(tensor);
      value = tensors;
    }
  }
  operation.callBoxed(stack);
  for (c10::IValue& value : *stack) {
    if (value.isTensor()) value = Shape(value.toTensor());
  }
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  for (const char* name : {"index_select", "convolution", "convolution_backward",
                           "native_batch_norm", "native_batch_norm_backward", "relu", "dot",
                           "_fused_sgd_.tensor_lr", "_fused_adamw_.tensor_lr",
                           "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&OnZeros>());
}

class Unread : public testing::TestWithParam<Config> {};

TEST_P(Unread, AStepNeverReadsFromTheDevice) {
  const at::Device device(at::kMeta);
  EXPECT_THROW(at::zeros({1}, device).item<float>(), c10::Error);
  LoneWorld world(device);
  Config config = Small(GetParam());
  config.samples =
      8 * StepRecorder::kWarmUpAlone + 12;  // then a replay and a batch that is not full
  Training training(config, world);
  const auto graphs = std::make_shared<Graphs>();
  const auto step = training.MakeStep([&] { return std::make_unique<CountedGraph>(graphs); });
  const EpochPlan epoch = training.Epoch();
  step->BeginEpoch(epoch);
  for (std::int64_t batch = 0; batch < epoch.batches(); ++batch)
    ASSERT_NO_THROW(step->MakeStep({.first = batch, .count = 1}, 0.1, batch + 1));
  EXPECT_TRUE(step->recorder().is_graph());
}

INSTANTIATE_TEST_SUITE_P(
    All, Unread,
    testing::Values(Config{.model = kSmallModel}, Config{.model = kSmallModel, .augment = true},
                    Config{.model = "resnet18"}, Config{.model = "netresdeep"},
                    Config{.model = "airbench"}, Config{.model = kSmallModel, .optimizer = "muon"},
                    Config{.model = kSmallModel, .optimizer = "adamw"},
                    Config{.model = kSmallModel, .clip_norm = 1, .ema_decay = 0.9},
                    Config{.model = kSmallModel, .amp = Amp::kFp16}));

// ---- Channels of zeros
// --------------------------------------------------------------------------------

class PaddedChannels : public testing::TestWithParam<const char*> {};

// Each step begins with the same parameters: where sums are rounded otherwise, as some CPUs'
// kernels do for another number of channels, that would grow from step to step.
TEST_P(PaddedChannels, ChangeNothingThatIsLearnt) {
  LoneWorld world(at::kCPU);
  Training plain(Small({.model = GetParam()}), world);
  Training padded(Small({.model = GetParam(), .pad_channels = 8}), world);
  const auto plain_step = plain.MakeStep(), padded_step = padded.MakeStep();
  const EpochPlan epoch = plain.Epoch();
  plain_step->BeginEpoch(epoch);
  padded_step->BeginEpoch(epoch);
  ASSERT_EQ(padded.parameters.size(), plain.parameters.size());
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    const auto loss_of = [batch](Training& training, TrainingLoop& step) {
      step.recorder().UseForward(training.model->Advance(batch < 2 ? 0 : 100));
      return step.MakeStep({.first = batch, .count = 1}, 0.01, batch + 1).loss.item<double>();
    };
    const double expected = loss_of(plain, *plain_step);
    EXPECT_NEAR(loss_of(padded, *padded_step), expected, 1e-3 * expected);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
      const auto& [name, value] = plain.parameters[i];
      const at::Tensor& other = padded.parameters[i].second;
      ASSERT_EQ(other.sizes(), value.sizes());
      EXPECT_TRUE(at::allclose(other, value, 1e-2, 1e-3)) << name << " after batch " << batch;
      other.copy_(value);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PaddedChannels,
                         testing::Values("resnet18", "netresdeep", "airbench"));

// ---- Captures
// -------------------------------------------------------------------------------------

// Steps until one is a graph.
void MakeUntilGraph(Training& training, TrainingLoop& step) {
  const EpochPlan epoch = training.Epoch();
  step.BeginEpoch(epoch);
  for (int i = 0; i < 5; ++i) step.MakeStep({.first = i, .count = 1}, 0.1, i + 1);
  EXPECT_TRUE(step.recorder().is_graph());
}

// As after a round that has ended, where the graphs of the step before are gone.
TEST(Captures, OfAStepThatFollowsAnotherHaveMemoryOfTheirOwn) {
  const auto graphs = std::make_shared<Graphs>();
  LoneWorld world(at::kCPU);
  Training training(Small(), world);
  for (int round = 0; round < 2; ++round) {
    MakeUntilGraph(training, *training.MakeStep(MakerOfPooledGraphs(graphs)));
    EXPECT_EQ(graphs->alive(), 0);
  }
  const MakeStepGraph shared = MakerOfPooledGraphs(graphs);
  MakeUntilGraph(training, *training.MakeStep(shared));
  EXPECT_THROW(MakeUntilGraph(training, *training.MakeStep(shared)), OwnError)
      << "the allocator's rule does not hold here";
}

// What the round's end leaves of a capture is of no use to the next round: the process ends.
TEST(Captures, ThatTheEndOfARoundInterruptsEndTheProcess) {
  struct Interrupted : StepGraph {
    Interrupted(Interrupt& round, bool nccl) : interrupt(round), by_nccl(nccl) {}
    void Capture(const std::function<void()>&) override {
      interrupt.Trigger();
      TORCH_CHECK(!by_nccl, "NCCL error: the communicator was aborted");
      throw RoundOver();
    }
    void Replay() override {}
    Interrupt& interrupt;
    const bool by_nccl;
  };
  for (const bool by_nccl : {false, true}) {
    const auto interrupt = std::make_shared<Interrupt>();
    LoneWorld world(at::kCPU, nullptr, World::kDefaultTimeout, interrupt);
    Training training(Small(), world);
    const auto step =
        training.MakeStep([&] { return std::make_unique<Interrupted>(*interrupt, by_nccl); });
    try {
      MakeUntilGraph(training, *step);
      FAIL() << "the capture was interrupted";
    } catch (const OwnError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the round ended while the step was captured"));
    }
  }
}

// ---- The border of an epoch
// --------------------------------------------------------------------------

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Hundreds of thousands of rows, which the thread that trains makes once: processor time, not time.
TEST(GpuFeedAhead, TheNextEpochsRowsAreMadeByAnotherThread) {
  Config config = Small({.model = kSmallModel, .augment = true});
  config.samples = 200'000;
  config.input_size = 1;
  const Dataset data = DataOf(config);
  GpuFeed feed(config, dynamic_cast<const FixedSizeImages&>(*data.train), at::kCPU);
  EpochPlan plan({.size = data.train->size(), .shard = {}, .batch_size = 1000, .seed = 1});
  const auto seconds_of = [&feed](const EpochPlan& epoch) {
    const double begin = ThreadSeconds();
    feed.BeginEpoch(epoch);
    return ThreadSeconds() - begin;
  };
  const double first = seconds_of(plan);
  const EpochPlan next(plan.Next());
  EXPECT_LT(seconds_of(next), first / 2);
  // Another epoch than the one that was expected.
  EXPECT_GT(seconds_of(plan), first / 4);
}

// ---- Warm-up
// --------------------------------------------------------------------------------------

struct Result {
  std::vector<at::Tensor> state;
  std::vector<double> losses;
};

Result TrainAll(const Config& config, bool warm_up, bool graphs_wanted) {
  LoneWorld world(at::kCPU);
  Console console(Console::Options{});
  const Dataset data = DataOf(config);
  TrainingState state(config, data.train->size(), 1);
  TrainingParts parts(config, data, {.world = world, .console = console});
  parts.strategy->Train();
  const auto graphs = std::make_shared<Graphs>();
  MakeStepGraph make_graph;
  if (graphs_wanted) make_graph = [graphs] { return std::make_unique<CountedGraph>(graphs); };
  const auto step = std::make_unique<TrainingLoop>(
      config,
      LoopParts{.world = world,
                .strategy = *parts.strategy,
                .optimizer = *parts.optimizer,
                .scaler = parts.scaler,
                .average = parts.average ? &*parts.average : nullptr},
      std::make_unique<GpuFeed>(config, dynamic_cast<const FixedSizeImages&>(*data.train),
                                world.device()),
      std::make_unique<StepRecorder>(world, make_graph));
  if (warm_up) {
    WarmUp(config, data, world, parts, *step, state);
    EXPECT_EQ(graphs->alive(),
              graphs_wanted ? 1 + static_cast<int>(parts.model->ForwardChanges().size()) : 0);
    EXPECT_EQ(parts.epoch_sums.Take(world).images, 0);
  }
  Result result;
  while (!state.Done()) {
    const EpochPlan epoch = state.BeginEpoch(parts.strategy->shard());
    step->BeginEpoch(epoch);
    for (std::int64_t batch = 0; batch < epoch.batches(); ++batch) {
      step->recorder().UseForward(parts.model->Advance(state.PlannedEpochs()));
      EXPECT_TRUE(step->recorder().is_warm() || !warm_up || !graphs_wanted);
      const auto made = step->MakeStep({.first = batch, .count = 1}, state.LearningRate(),
                                       state.position().step + 1);
      result.losses.push_back(made.loss.item<double>());
      state.EndStep(epoch, batch);
    }
    state.EndEpochIfConsumed();
  }
  for (const at::Tensor& tensor : parts.strategy->State())
    result.state.push_back(tensor.detach().clone());
  result.state.push_back(at::rand({4}));  // the generator's next numbers
  return result;
}

class WarmUps : public testing::TestWithParam<Config> {};

TEST_P(WarmUps, LeaveNoTrace) {
  const Config config = Small(GetParam());
  for (const bool graphs : {false, true}) {
    const Result cold = TrainAll(config, /*warm_up=*/false, graphs);
    const Result warm = TrainAll(config, /*warm_up=*/true, graphs);
    EXPECT_EQ(warm.losses, cold.losses);
    ASSERT_EQ(warm.state.size(), cold.state.size());
    for (std::size_t i = 0; i < warm.state.size(); ++i)
      EXPECT_TRUE(at::equal(warm.state[i], cold.state[i])) << "tensor " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WarmUps,
    testing::Values(Config{.model = kSmallModel},
                    Config{.model = kSmallModel, .augment = true, .ema_decay = 0.9},
                    Config{.model = kSmallModel, .optimizer = "adamw", .clip_norm = 1},
                    Config{.model = kSmallModel, .optimizer = "muon"},
                    Config{.model = "airbench", .whiten_epochs = 2},
                    Config{.model = kSmallModel, .eval = false}));

}  // namespace
}  // namespace ddprun
