// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"
#include "worker/train/config/config_file.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const Config& config) {
  return ToConfigText(config, [](const Setting& setting) { return setting.choices; });
}

TEST(ConfigText, IsReadBack) {
  Config config;
  config.model = "resnet50";
  config.max_steps = 7;
  config.lr = 0.125;
  config.nesterov = true;
  config.data_dir = "/a folder/with \"quotes\": and # signs";
  config.output_dir = "12";
  const TempFiles files;
  Config read;
  const std::string path = files.Write("c.yaml", TextOf(config));
  ApplyConfigText(read, path, ReadConfigText(path));
  for (const Setting& setting : Settings())
    EXPECT_EQ(ToText(read, setting), ToText(config, setting)) << setting.key;
}

TEST(ConfigText, NumbersKeepAllTheirDigits) {
  Config config;
  config.lr = 0.1 + 0.2;
  config.weight_decay = 0.00012345678;
  config.epochs = 1234567.5;
  const TempFiles files;
  Config read;
  const std::string path = files.Write("c.yaml", TextOf(config));
  ApplyConfigText(read, path, ReadConfigText(path));
  EXPECT_EQ(read.lr, config.lr);
  EXPECT_EQ(read.weight_decay, config.weight_decay);
  EXPECT_EQ(read.epochs, config.epochs);
  EXPECT_THAT(TextOf(config), HasSubstr("\nepochs: 1234567.5 "));
  EXPECT_THAT(TextOf(config), HasSubstr("\nmomentum: 0.9 "));
}

TEST(ConfigText, WhatIsNotSetIsAComment) {
  EXPECT_THAT(TextOf(Config{}), HasSubstr("\n# max_steps:"));
  Config config;
  config.max_steps = 0;
  EXPECT_THAT(TextOf(config), HasSubstr("\nmax_steps: 0 "));
}

TEST(ConfigText, AWordThatYamlTakesForATruthValueIsQuoted) {
  EXPECT_THAT(TextOf(Config{}), HasSubstr("\namp: \"off\" "));
  EXPECT_THAT(TextOf(Config{}), Not(HasSubstr("\"cosine\"")));
}

TEST(ConfigText, NamesTheChoices) {
  EXPECT_THAT(TextOf(Config{}),
              HasSubstr("and without skipped steps (off, auto, bf16, fp16, fp16-pure)\n"));
}

}  // namespace
}  // namespace ddprun
