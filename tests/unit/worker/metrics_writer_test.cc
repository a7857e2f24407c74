// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/metrics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <limits>

#include "tests/testing/eventually.h"
#include "worker/train/metrics/metric_series.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class MetricsWriterTest : public testing::Test {
 protected:
  MetricsWriterTest() {
    folder_ = std::filesystem::path(testing::TempDir()) / ("run_log_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~MetricsWriterTest() override { std::filesystem::remove_all(folder_); }

  // Steps of the points of "loss/train".
  std::vector<std::int64_t> Steps(const char* file = kMetricsFileName) const {
    std::vector<std::int64_t> steps;
    const MetricSeries series = ReadMetrics(folder_ / file);
    for (const auto& point : series.at("loss/train")) steps.push_back(point.step);
    return steps;
  }
  std::size_t EventFiles() const {
    const std::filesystem::directory_iterator entries(folder_ / kTensorboardFolder);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

  std::filesystem::path folder_;
};

TEST(JsonLine, IsAnObjectInTheOrderGiven) {
  EXPECT_EQ(JsonLine(50, 2.25, {{"loss/train", 0.53}, {"epoch", 1}}),
            "{\"step\":50,\"time\":2.25,\"loss/train\":0.53,\"epoch\":1.0}\n");
  EXPECT_EQ(JsonLine(1, 0.5, {{"grad_norm", std::numeric_limits<double>::infinity()}}),
            "{\"step\":1,\"time\":0.5,\"grad_norm\":null}\n");
}

TEST_F(MetricsWriterTest, WritesAllAtTheEnd) {
  {
    MetricsWriter log({.directory = folder_, .tensorboard = true});
    for (int step = 1; step <= 3; ++step) log.Write(step, {{"loss/train", 1.0 / step}});
  }
  EXPECT_EQ(Steps(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(EventFiles(), 1);
}

TEST_F(MetricsWriterTest, WritesWhileTheRunGoesOn) {
  MetricsWriter log({.directory = folder_, .flush_interval = std::chrono::milliseconds(1)});
  log.Write(1, {{"loss/train", 1}});
  EXPECT_TRUE(Eventually([&] { return BytesUpToStep(folder_ / kMetricsFileName, 1) > 0; }));
}

TEST_F(MetricsWriterTest, ResumedRunSupersedesWhatWasLost) {
  {
    MetricsWriter log({.directory = folder_, .tensorboard = true});
    for (int step = 10; step <= 50; step += 10) log.Write(step, {{"loss/train", 1}});
  }
  {
    MetricsWriter log({.directory = folder_, .tensorboard = true, .steps_done = 30});
    log.Write(35, {{"loss/train", 2}});
  }
  EXPECT_EQ(Steps(), (std::vector<std::int64_t>{10, 20, 30, 35}));
  EXPECT_EQ(EventFiles(), 2);
}

TEST_F(MetricsWriterTest, AnotherRunInTheFolderKeepsTheFormerOnes) {
  { MetricsWriter(MetricsWriter::Options{.directory = folder_}).Write(1, {{"loss/train", 1}}); }
  { MetricsWriter(MetricsWriter::Options{.directory = folder_}).Write(2, {{"loss/train", 1}}); }
  EXPECT_EQ(Steps(), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(Steps(kFormerMetricsFileName), (std::vector<std::int64_t>{1}));
}

TEST_F(MetricsWriterTest, ARunThatGoesBackToItsBeginningKeepsTheFormerOnes) {
  { MetricsWriter(MetricsWriter::Options{.directory = folder_}).Write(1, {{"loss/train", 1}}); }
  { MetricsWriter(MetricsWriter::Options{.directory = folder_}).Write(2, {{"loss/train", 1}}); }
  {
    MetricsWriter(MetricsWriter::Options{.directory = folder_, .goes_back = true})
        .Write(3, {{"loss/train", 1}});
  }
  EXPECT_EQ(Steps(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(Steps(kFormerMetricsFileName), (std::vector<std::int64_t>{1}));
}

TEST_F(MetricsWriterTest, NothingIsWrittenWithoutBoth) {
  {
    MetricsWriter(MetricsWriter::Options{.directory = folder_, .jsonl = false})
        .Write(1, {{"loss/train", 1}});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(MetricsWriterTest, WarningNamesFileReasonAndWhatToDo) {
  std::vector<std::string> warnings;
  const std::string folder = folder_ / "not" / "there";
  std::ofstream(folder_ / "not") << "a file";
  {
    MetricsWriter log({.directory = folder,
                       .tensorboard = true,
                       .warn = [&](const std::string& text) { warnings.push_back(text); }});
    log.Write(1, {{"loss/train", 1}});
  }
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0], HasSubstr(folder + "/metrics.jsonl: Not a directory; training goes on"));
}

// Holds for a resumed run too, which would read the file first.
TEST_F(MetricsWriterTest, AFifoCostsThatFileAlone) {
  const std::string path = folder_ / kMetricsFileName;
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const std::int64_t steps_done : {0, 5}) {
    std::vector<std::string> warnings;
    {
      MetricsWriter log({.directory = folder_,
                         .tensorboard = true,
                         .steps_done = steps_done,
                         .warn = [&](const std::string& text) { warnings.push_back(text); }});
      log.Write(steps_done + 1, {{"loss/train", 1}});
    }
    EXPECT_THAT(warnings, testing::ElementsAre(
                              "metrics cannot be written to " + path +
                              ": it is not a regular file; training goes on without it: remove it "
                              "before the next run"));
  }
  EXPECT_EQ(EventFiles(), 2);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST_F(MetricsWriterTest, QueueIsBoundedWhileTheDiskHangs) {
  std::filesystem::create_directory(folder_ / kMetricsFileName);  // so that there is a warning
  std::promise<void> hanging;
  std::promise<void> released;
  std::size_t first_size = 0;
  {
    MetricsWriter log({.directory = folder_, .tensorboard = true, .warn = [&](const std::string&) {
                         hanging.set_value();
                         released.get_future().wait();
                       }});
    ASSERT_EQ(hanging.get_future().wait_for(kEventuallyDeadline), std::future_status::ready);
    for (std::size_t i = 1; i <= 3 * MetricsWriter::kQueueRecords; ++i) {
      log.Write(static_cast<std::int64_t>(i), {{"loss/train", 1}});
    }
    first_size = TfRecord(ScalarsEvent(1, 1.5, {{"loss/train", 1}})).size();
    released.set_value();
  }
  const auto entry = *std::filesystem::directory_iterator(folder_ / kTensorboardFolder);
  // A step above 127 takes a byte more; and two records begin the file.
  EXPECT_GE(entry.file_size(), MetricsWriter::kQueueRecords * first_size);
  EXPECT_LE(entry.file_size(), MetricsWriter::kQueueRecords * (first_size + 1) + 200);
}

}  // namespace
}  // namespace ddprun
