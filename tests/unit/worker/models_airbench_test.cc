// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/train/models/models.h"
#include "worker/train/speedrun/whitening.h"

namespace ddprun {
namespace {

constexpr double kEps = 5e-4;

// Neighbours are alike, as in pictures.
at::Tensor Pictures(std::int64_t count) {
  torch::manual_seed(5);
  return at::avg_pool2d(at::randn({count, 3, 34, 34}), /*kernel_size=*/3, /*stride=*/1).mul_(3) +
         at::randn({count, 1, 1, 1});
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

at::Tensor Parameter(const ImageModel& model, const std::string& name) {
  return model.named_parameters()[name];
}

std::shared_ptr<ImageModel> Small(double whiten_epochs = 3) {
  torch::manual_seed(6);
  return MakeModel("airbench", {.widening = 0.25, .whiten_epochs = whiten_epochs});
}

TEST(PatchCovariance, FiltersMakeUncorrelatedNumbersOfVarianceOne) {
  const at::Tensor images = Pictures(64);
  PatchCovariance covariance(3, 2);
  covariance.Add(images);
  const at::Tensor filters = covariance.Filters(/*eps=*/0);
  ASSERT_EQ(filters.sizes(), (std::vector<std::int64_t>{24, 3, 2, 2}));
  EXPECT_TRUE(filters.narrow(0, 0, 12).equal(-filters.narrow(0, 12, 12)));
  const at::Tensor answers =
      at::conv2d(images, filters.narrow(0, 0, 12)).transpose(0, 1).flatten(1).to(at::kDouble);
  const at::Tensor found = answers.matmul(answers.t()) / answers.size(1);
  EXPECT_LT(Difference(found, at::eye(12, at::kDouble)), 1e-4);
}

at::Tensor Grey(const at::Tensor& images) {
  return images.mean(1, /*keepdim=*/true).expand({-1, 3, -1, -1});
}

at::Tensor LengthsOfFilters(const at::Tensor& images) {
  PatchCovariance covariance(3, 2);
  covariance.Add(images);
  return covariance.Filters(kEps).narrow(0, 0, 12).flatten(1).norm(2, {1});
}

TEST(PatchCovariance, EpsHoldsSmallDirectionsDown) {
  const at::Tensor lengths = LengthsOfFilters(Grey(Pictures(8)) + Pictures(8) * 0.01);
  EXPECT_GT(lengths.max().item<double>(), 20);
  EXPECT_LT(lengths.max().item<double>(), 1 / std::sqrt(kEps));
}

TEST(PatchCovariance, DirectionsOfNothingGiveWayToTheOthers) {
  const at::Tensor lengths = LengthsOfFilters(Grey(Pictures(8)));
  EXPECT_LT(lengths.max().item<double>(), 20);
  EXPECT_TRUE(lengths.narrow(0, 0, 4).equal(lengths.narrow(0, 8, 4)));
  EXPECT_TRUE(lengths.narrow(0, 4, 4).equal(lengths.narrow(0, 8, 4)));
  EXPECT_GT(lengths.narrow(0, 8, 4).std().item<double>(), 0.01);
}

TEST(PatchCovariance, IsThatOfAllThatWereAdded) {
  const at::Tensor images = Pictures(12);
  PatchCovariance at_once(3, 2);
  at_once.Add(images);
  PatchCovariance in_parts(3, 2);
  in_parts.Add(images.narrow(0, 0, 5));
  in_parts.Add(images.narrow(0, 5, 7).contiguous(at::MemoryFormat::ChannelsLast));
  const auto product = [](const PatchCovariance& covariance) {
    const at::Tensor filters = covariance.Filters(kEps).flatten(1);  // their signs are arbitrary
    return filters.t().matmul(filters);
  };
  EXPECT_LT(Difference(product(at_once), product(in_parts)), 1e-2);
}

TEST(Airbench, StartsAsTheOriginalDoes) {
  torch::manual_seed(7);
  const auto model = MakeModel("airbench", {});
  const at::Tensor first = Parameter(*model, "layers.2.conv1.weight");
  ASSERT_EQ(first.sizes(), (std::vector<std::int64_t>{256, 64, 3, 3}));
  // The identity on what comes in, random beyond.
  const at::Tensor image = at::randn({1, 64, 6, 6});
  EXPECT_EQ(Difference(at::conv2d(image, first, {}, 1, 1).narrow(1, 0, 64), image), 0);
  EXPECT_NEAR(first.narrow(0, 64, 192).std().item<double>(), 1 / std::sqrt(3.0 * 64 * 9), 1e-3);
  EXPECT_NEAR(Parameter(*model, "head.weight").std().item<double>(), 1, 1e-6);
}

TEST(Airbench, WhatIsFrozenIsNotTrained) {
  const auto model = MakeModel("airbench", {});
  std::vector<std::string> frozen;
  for (const auto& item : model->named_parameters()) {
    if (!item.value().requires_grad()) frozen.push_back(item.key());
  }
  EXPECT_THAT(frozen, testing::UnorderedElementsAre(
                          "whiten.weight", "layers.1.norm1.weight", "layers.1.norm2.weight",
                          "layers.2.norm1.weight", "layers.2.norm2.weight", "layers.3.norm1.weight",
                          "layers.3.norm2.weight"));
}

TEST(Airbench, TakesItsFiltersFromTheImagesThatItIsShown) {
  const auto model = Small();
  EXPECT_EQ(model->calibration_images(), 5000);
  const at::Tensor images = Pictures(20);
  model->Calibrate(images.narrow(0, 0, 10));
  model->Calibrate(images.narrow(0, 10, 10));
  PatchCovariance covariance(3, 2);
  covariance.Add(images.narrow(0, 0, 10));
  covariance.Add(images.narrow(0, 10, 10));
  EXPECT_TRUE(Parameter(*model, "whiten.weight").equal(covariance.Filters(kEps)));
  EXPECT_FALSE(Parameter(*model, "whiten.weight").requires_grad());
}

// Every parameter, with the gradients of one batch.
std::map<std::string, at::Tensor> Gradients(ImageModel& model, const at::Tensor& images) {
  for (auto& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
  model.train();
  model.forward(images).square().sum().backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) gradients[item.key()] = item.value().grad();
  }
  return gradients;
}

TEST(Airbench, AfterItsEpochsOnlyTheWhiteningsBiasHasAnotherGradient) {
  const auto model = Small(/*whiten_epochs=*/2);
  const at::Tensor images = Pictures(4);
  EXPECT_THAT(model->ForwardChanges(), testing::ElementsAre(2));
  EXPECT_EQ(model->Advance(0), 0);
  EXPECT_EQ(model->Advance(1.9), 0);
  const auto before = Gradients(*model, images);
  EXPECT_EQ(model->Advance(2), 1);
  EXPECT_EQ(model->Advance(2.1), 1);
  const auto after = Gradients(*model, images);
  EXPECT_EQ(model->Advance(0), 0);  // another training from its beginning
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, gradient] : after) {
    // Defined, as a reducer waits for it.
    ASSERT_TRUE(gradient.defined()) << name;
    if (name == kWhiteningBias) {
      EXPECT_EQ(gradient.abs().max().item<double>(), 0);
      EXPECT_GT(before.at(name).abs().max().item<double>(), 0);
    } else {
      EXPECT_TRUE(gradient.equal(before.at(name))) << name;
    }
  }
}

TEST(Airbench, TakesOtherSizesChannelsAndWidths) {
  const torch::NoGradGuard no_grad;
  for (const ModelOptions& options :
       {ModelOptions{.in_channels = 1, .height = 28, .width = 36, .classes = 7, .widening = 0.1},
        ModelOptions{.height = 9, .width = 64, .classes = 7, .widening = 0.5}}) {
    const auto model = MakeModel("airbench", options);
    model->eval();
    EXPECT_EQ(
        model->forward(at::randn({2, options.in_channels, options.height, options.width})).sizes(),
        (std::vector<std::int64_t>{2, 7}));
  }
  EXPECT_THROW(MakeModel("airbench", {.height = 8}), std::invalid_argument);
}

}  // namespace
}  // namespace ddprun
