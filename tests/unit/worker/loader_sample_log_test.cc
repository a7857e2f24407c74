// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/sample_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sstream>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(SampleLogTest, HasALineForEachBatchAtOnce) {
  const TempFiles files;
  SampleLog log({.output_dir = files.folder(), .rank = 3, .world_size = 4});
  log.Add(1, 1, {{.index = 5, .position = 0}, {.index = 77, .position = 2}});
  log.Add(2, 1, {});
  EXPECT_EQ(Contents(files.Path("samples-3.jsonl")),
            "{\"step\": 1, \"epoch\": 1, \"images\": [5, 77]}\n"
            "{\"step\": 2, \"epoch\": 1, \"images\": []}\n");
}

TEST(SampleLogTest, ATrainingThatGoesOnAddsToWhatItGoesOnFrom) {
  const TempFiles files;
  const std::vector<Sample> one = {{.index = 7, .position = 0}};
  for (const int rank : {0, 1, 2}) {
    SampleLog log({.output_dir = files.folder(), .rank = rank, .world_size = 3});
    for (const std::int64_t step : {1, 2, 3}) log.Add(step, 1, one);
  }
  std::ofstream(files.Path("samples-0.jsonl"), std::ios::app) << "{\"step\": 2, \"ep";
  {
    SampleLog log({.output_dir = files.folder(), .world_size = 1, .steps = 2});
    log.Add(3, 1, {});
  }
  const std::string two =
      "{\"step\": 1, \"epoch\": 1, \"images\": [7]}\n"
      "{\"step\": 2, \"epoch\": 1, \"images\": [7]}\n";
  EXPECT_EQ(Contents(files.Path("samples-0.jsonl")),
            two + "{\"step\": 3, \"epoch\": 1, \"images\": []}\n");
  for (const char* name : {"samples-1.jsonl", "samples-2.jsonl"})
    EXPECT_EQ(Contents(files.Path(name)), two) << name;
}

TEST(SampleLogTest, WhatCannotBeWrittenIsNamed) {
  EXPECT_THAT(MessageOf<std::runtime_error>([] { SampleLog log({.output_dir = "/nowhere"}); }),
              HasSubstr("/nowhere/samples-0.jsonl: No such file"));
}

// Rank 0 reads the files of ranks that are no more, too.
TEST(SampleLogTest, AFifoIsNamedAndNotWaitedFor) {
  for (const char* name : {"samples-0.jsonl", "samples-1.jsonl"}) {
    const TempFiles files;
    ASSERT_EQ(mkfifo(files.Path(name).c_str(), 0600), 0);
    EXPECT_EQ(MessageOf<std::runtime_error>([&] { SampleLog log({.output_dir = files.folder()}); }),
              "cannot write " + files.Path(name) +
                  ": it is not a regular file; remove it, or leave out --log-samples");
  }
}

}  // namespace
}  // namespace ddprun
