// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/bucket_layout.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

// Parameters of 400, 40, 400 and 4 bytes.
std::vector<at::Tensor> FourParameters() {
  return {at::zeros({100}), at::zeros({10}), at::zeros({100}), at::zeros({1})};
}

TEST(IsLayoutOf, WhatTheseLimitsMakeOfAnOrder) {
  const auto fits = [](const std::vector<std::size_t>& limits, const BucketLayout& layout) {
    return IsLayoutOf(FourParameters(), limits, layout);
  };
  // A bucket is closed once it has reached its limit.
  EXPECT_TRUE(fits({1, 404}, {{3}, {2, 1}, {0}}));
  EXPECT_TRUE(fits({1, 404}, {{1}, {3, 0}, {2}}));
  EXPECT_TRUE(fits({1000, 1000}, {{3, 2, 1, 0}}));
  EXPECT_TRUE(fits({1000, 1000}, {{0, 1, 2, 3}}));
}

TEST(IsLayoutOf, NotWhatOtherLimitsMake) {
  const std::vector<at::Tensor> parameters = FourParameters();
  EXPECT_FALSE(IsLayoutOf(parameters, {1, 400}, {{3, 2}, {1, 0}}));
  EXPECT_FALSE(IsLayoutOf(parameters, {1, 1000}, {{3}, {2, 1}, {0}}));
  EXPECT_FALSE(IsLayoutOf(parameters, {1000, 1000}, {{3}, {2, 1, 0}}));
  EXPECT_FALSE(IsLayoutOf(parameters, {1, 1}, {{3, 2, 1, 0}}));
}

TEST(IsLayoutOf, NotWhatIsOfOtherParameters) {
  const std::vector<at::Tensor> parameters = FourParameters();
  const std::vector<std::size_t> limits = {1000, 1000};
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{3, 2, 1}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{4, 3, 2, 1, 0}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{3, 2, 1, 1}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{3, 2, 1, 0}, {0}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{3, 2, 1, 0}, {}}));
  EXPECT_FALSE(IsLayoutOf(parameters, limits, {{3, 2, 1, std::size_t{1} << 63}}));
}

// The reducer cannot add them up in one buffer.
TEST(IsLayoutOf, NotOneBucketOfTwoTypes) {
  const std::vector<at::Tensor> parameters = {at::zeros({2}), at::zeros({2}, at::kDouble)};
  EXPECT_FALSE(IsLayoutOf(parameters, {1000, 1000}, {{1, 0}}));
  EXPECT_TRUE(IsLayoutOf(parameters, {1, 1}, {{1}, {0}}));
}

}  // namespace
}  // namespace ddprun
