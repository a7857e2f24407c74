// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/metric_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

using testing::HasSubstr;

class MetricSeriesTest : public testing::Test {
 protected:
  MetricSeriesTest() {
    path_ =
        std::filesystem::path(testing::TempDir()) / ("metric_series_" + std::to_string(getpid()));
  }
  ~MetricSeriesTest() override { std::filesystem::remove(path_); }
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  std::filesystem::path path_;
};

TEST_F(MetricSeriesTest, ReadsEachNamesPoints) {
  Write(
      "{\"step\":1,\"time\":10.5,\"loss/train\":2.5,\"grad_norm\":null}\n"
      "{\"step\":2,\"time\":11,\"loss/train\":2,\"accuracy/test\":0.25}\n"
      "{\"step\":3,\"time\":12,\"loss/tr");  // still being written
  const MetricSeries series = ReadMetrics(path_);
  ASSERT_EQ(series.size(), 2);
  ASSERT_EQ(series.at("loss/train").size(), 2);
  EXPECT_EQ(series.at("loss/train")[0].step, 1);
  EXPECT_EQ(series.at("loss/train")[0].time, 10.5);
  EXPECT_EQ(series.at("loss/train")[1].value, 2);
  EXPECT_EQ(series.at("accuracy/test")[0].step, 2);
}

TEST_F(MetricSeriesTest, ForeignFileIsNamedWithItsLine) {
  Write("{\"step\":1,\"time\":10}\n[1, 2]\n");
  try {
    ReadMetrics(path_);
    FAIL() << "must throw";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr(path_.string() + " line 2 is no JSON object with step and time"));
  }
  EXPECT_THROW(ReadMetrics(path_ / "not there"), std::runtime_error);
}

TEST_F(MetricSeriesTest, FindsWhereAResumedRunGoesOn) {
  const std::string first = "{\"step\":10,\"time\":1}\n";
  const std::string second = "{\"step\":20,\"time\":2}\n";
  Write(first + second + "{\"step\":30,\"ti");
  EXPECT_EQ(BytesUpToStep(path_, 9), 0);
  EXPECT_EQ(BytesUpToStep(path_, 10), first.size());
  EXPECT_EQ(BytesUpToStep(path_, 19), first.size());
  EXPECT_EQ(BytesUpToStep(path_, 1000), first.size() + second.size());
  EXPECT_EQ(BytesUpToStep(path_ / "not there", 5), 0);
}

TEST_F(MetricSeriesTest, AResumedRunDoesNotWaitForTheWriterOfAFifo) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(BytesUpToStep(path_, 5), 0);
}

}  // namespace
}  // namespace ddprun
