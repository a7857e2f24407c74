// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/train/config/config.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

TEST(AutocastType, Fp16OnACpuIsRefusedInASentence) {
  EXPECT_EQ(AutocastType(Amp::kOff, at::kCPU), std::nullopt);
  EXPECT_EQ(AutocastType(Amp::kBf16, at::kCPU), at::kBFloat16);
  EXPECT_EQ(AutocastType(Amp::kFp16, at::Device(at::kCUDA, 0)), at::kHalf);
  try {
    AutocastType(Amp::kFp16, at::kCPU);
    FAIL() << "fp16 on a CPU was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("--amp fp16"), testing::HasSubstr("--amp bf16")));
  }
}

TEST(AutocastType, AutoIsBf16OnAGpuAlone) {
  EXPECT_EQ(AutocastType(Amp::kAuto, at::kCPU), std::nullopt);
  EXPECT_EQ(AutocastType(Amp::kAuto, at::Device(at::kCUDA, 0)), at::kBFloat16);
}

TEST(AutocastType, PureFp16IsForAnyDevice) {
  EXPECT_EQ(AutocastType(Amp::kFp16Pure, at::kCPU), at::kHalf);
  EXPECT_EQ(AutocastType(Amp::kFp16Pure, at::Device(at::kCUDA, 0)), at::kHalf);
}

TEST(MakeGradScaler, PureFp16SumsTheLossOverTheBatch) {
  Config config;
  config.batch_size = 500;
  EXPECT_FALSE(MakeGradScaler(config, at::kCPU).scale().defined());
  config.amp = Amp::kFp16;
  EXPECT_TRUE(MakeGradScaler(config, at::kCPU).enabled());
  config.amp = Amp::kFp16Pure;
  EXPECT_EQ(MakeGradScaler(config, at::kCPU).scale().item<float>(), 500);
}

// LibTorch fills new tensors with NaN by default, which costs a tenth of a step. A training reads
// nothing that was not written: filled or not, it has the same bits.
TEST(UseDeterministicAlgorithms, FillsNoMemoryAndNobodyReadsWhatNothingWrote) {
  auto& context = at::globalContext();
  UseDeterministicAlgorithms();
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  const auto train = [&](bool fill) {
    context.setDeterministicFillUninitializedMemory(fill);
    torch::manual_seed(3);
    const auto model = MakeModel("resnet18", {.height = 16, .width = 16});
    model->train();
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Autocast autocast(at::kCPU, step == 0 ? std::nullopt : std::optional(at::kBFloat16));
      model->forward(at::randn({4, 3, 16, 16})).to(at::kFloat).square().mean().backward();
      optimizer.step();
    }
    std::vector<at::Tensor> state = model->parameters();
    for (const at::Tensor& buffer : model->buffers()) state.push_back(buffer);
    return state;
  };
  const auto filled = train(true);
  const auto plain = train(false);
  context.setDeterministicAlgorithms(false, false);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i].detach(), filled[i].detach())) << i;
}

TEST(Autocast, LastsAsLongAsItsScope) {
  const at::Tensor a = at::ones({4, 4});
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
  const Autocast off(at::kCPU, std::nullopt);
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

// A cast of a weight that outlived its step would hide the step's change.
TEST(Autocast, SeesAWeightThatHasChangedBetweenScopes) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const auto product = [&] {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    return at::mm(at::ones({2, 2}), weight).sum().item<float>();
  };
  EXPECT_EQ(product(), 8);
  {
    const torch::NoGradGuard no_grad;
    at::Tensor(weight).mul_(2);
  }
  EXPECT_EQ(product(), 16);
}

TEST(Autocast, ModelsThatBeginWithACastTakeImagesThatWereCast) {
  int count = 0;
  for (const std::string& name : Models().Names()) {
    if (name == "torchscript") continue;  // which is a file
    torch::manual_seed(1);
    const auto model = MakeModel(name, {});
    if (!model->begins_in_autocast()) continue;
    ++count;
    const at::Tensor images = at::randn({2, 3, 32, 32});
    const Autocast autocast(at::kCPU, at::kBFloat16);
    const at::Tensor scores = model->forward(images);
    EXPECT_TRUE(at::equal(model->forward(images.to(at::kBFloat16)), scores)) << name;
  }
  EXPECT_GE(count, 5);
}

}  // namespace
}  // namespace ddprun
