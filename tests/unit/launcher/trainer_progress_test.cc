// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/trainer_progress.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "launcher/base/limits.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using nlohmann::json;

constexpr char kTime[] = "2026-11-28T12:00:00Z";

json StatusOf(const TrainerStatus& status) {
  return json::parse(TrainerStatusJson(status, kTime)).at("trainerStatus");
}

std::map<std::string, std::string> MetricsOf(const json& status) {
  std::map<std::string, std::string> metrics;
  for (const json& metric : status.at("metrics")) metrics[metric.at("name")] = metric.at("value");
  return metrics;
}

TEST(TrainerProgressTest, ThePercentageFollowsFromAllSteps) {
  TrainerStatus status{
      .progress = ParseProgress("STEP=250\nSTEPS=1000\nEPOCH=2\nRATE=9.5\nUNIT=images"),
      .world_size = 8,
      .restarts = 1,
      .seconds_per_step = 0.5};
  const json body = StatusOf(status);
  EXPECT_EQ(body.at("progressPercentage"), 25);
  EXPECT_EQ(body.at("estimatedRemainingSeconds"), 375);
  EXPECT_EQ(body.at("lastUpdatedTime"), kTime);
  const std::map<std::string, std::string> wanted = {{"step", "250"},
                                                     {"epoch", "2"},
                                                     {"images_per_second_rank0", "9.5"},
                                                     {"world_size", "8"},
                                                     {"restarts", "1"}};
  EXPECT_EQ(MetricsOf(body), wanted);
}

TEST(TrainerProgressTest, WhatIsNotKnownIsLeftOut) {
  const json body = StatusOf({.progress = ParseProgress("STEP=250")});
  EXPECT_FALSE(body.contains("progressPercentage"));
  EXPECT_FALSE(body.contains("estimatedRemainingSeconds"));
  EXPECT_EQ(MetricsOf(body).at("step"), "250");
}

TEST(TrainerProgressTest, AllOfItIsDoneOnlyWhenTheRunHasEnded) {
  TrainerStatus status{.progress = ParseProgress("STEP=1200\nSTEPS=1000"), .seconds_per_step = 1};
  EXPECT_EQ(StatusOf(status).at("progressPercentage"), 99);
  EXPECT_EQ(StatusOf(status).at("estimatedRemainingSeconds"), 0);
  status.complete = true;
  EXPECT_EQ(StatusOf(status).at("progressPercentage"), 100);
}

TEST(TrainerProgressTest, ValuesKeepToTheApisLimits) {
  const std::string unit(4000, '\xff');  // no UTF-8
  const json body = StatusOf(
      {.progress = ParseProgress("STEP=1\nSTEPS=9223372036854775807\nRATE=1\nUNIT=" + unit),
       .seconds_per_step = 1e12});
  EXPECT_EQ(body.at("estimatedRemainingSeconds"), 2147483647);
  for (const auto& [name, value] : MetricsOf(body)) {
    EXPECT_LE(name.size(), 3 * kTrainerTextBytesMax) << name;  // U+FFFD has three bytes, and is one
    EXPECT_LE(value.size(), kTrainerTextBytesMax) << value;
  }
}

TEST(TrainerProgressTest, WithoutAServerNothingIsDue) {
  Background background;
  TrainerProgress progress(From({}), background);
  const TimePoint now{};
  progress.OnStart({.rank_first = 0});
  progress.OnProgress(0, ParseProgress("STEP=1"), now);
  EXPECT_FALSE(progress.NextDeadline().has_value());
  progress.OnEnd(true);
}

TEST(TrainerProgressTest, OnlyRank0Reports) {
  Background background;
  TrainerProgress progress(From({{"KUBEFLOW_TRAINER_SERVER_URL", "https://127.0.0.1:1/x"},
                                 {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "/nonexistent/ca"},
                                 {"KUBEFLOW_TRAINER_SERVER_TOKEN", "/nonexistent/token"}}),
                           background);
  const TimePoint now{};
  progress.OnStart({.rank_first = 4});
  progress.OnProgress(0, ParseProgress("STEP=1"), now);
  EXPECT_FALSE(progress.NextDeadline().has_value());
  progress.OnStart({.rank_first = 0});
  progress.OnProgress(1, ParseProgress("STEP=1"), now);
  EXPECT_FALSE(progress.NextDeadline().has_value());
  progress.OnProgress(0, ParseProgress("STEP=1"), now);
  EXPECT_TRUE(progress.NextDeadline().has_value());
}

}  // namespace
}  // namespace ddprun
