// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/output/log_file.h"
#include "tests/testing/eventually.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr seconds kDeadline{30};  // only a test that fails waits for it

absl::Status WaitUntilOpen(LogWriter& writer) {
  std::optional<absl::Status> opened;
  EXPECT_TRUE(Eventually([&] { return (opened = writer.Opened()).has_value(); }));
  return opened.value_or(absl::DeadlineExceededError("not open"));
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class LogFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/log_file_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/a/b/stdout.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(LogFile& file, const std::string& text) {
    std::size_t written = 0;
    const absl::Status status = file.Write(text, written);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(written, text.size());
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/a/b"))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(LogFileTest, ASecondOneAppends) {
  for (const char* text : {"one\n", "two\n"}) {
    LogFile file(path_, LogRotation{});
    Write(file, text);
  }
  EXPECT_EQ(Content(path_), "one\ntwo\n");
}

TEST_F(LogFileTest, RotatedFilesAreNumberedAndAllKept) {
  for (int run = 0; run < 2; ++run) {
    LogFile file(path_, LogRotation{.bytes = 8});
    Write(file, "12345\n12345\n12345\n");
  }
  EXPECT_THAT(Names(), ElementsAre("stdout.log", "stdout.log.1", "stdout.log.2", "stdout.log.3",
                                   "stdout.log.4", "stdout.log.5"));
  for (const std::string& name : Names()) EXPECT_EQ(Content(folder_ + "/a/b/" + name), "12345\n");
}

TEST_F(LogFileTest, OfAsManyAsAskedForTheOldestGo) {
  LogFile file(path_, LogRotation{.bytes = 8, .files = 3});
  Write(file, "1____\n2____\n3____\n4____\n5____\n");
  EXPECT_THAT(Names(), ElementsAre("stdout.log", "stdout.log.3", "stdout.log.4"));
  EXPECT_EQ(Content(path_ + ".3"), "3____\n");
  LogFile alone(folder_ + "/a/c.log", LogRotation{.bytes = 8, .files = 1});
  Write(alone, "1____\n2____\n");
  EXPECT_EQ(Content(folder_ + "/a/c.log"), "2____\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/c.log.1"));
}

TEST_F(LogFileTest, WhatAnotherHasPutThereIsSkipped) {
  LogFile file(path_, LogRotation{.bytes = 8});
  Write(file, "12345\n");
  std::ofstream(path_ + ".1") << "another's";
  Write(file, "67890\n");
  EXPECT_EQ(Content(path_ + ".1"), "another's");
  EXPECT_EQ(Content(path_ + ".2"), "12345\n");
}

// A disk that hangs is a FIFO that nobody reads.
class LogWriterTest : public LogFileTest {
 protected:
  void SetUp() override {
    LogFileTest::SetUp();
    fifo_ = folder_ + "/fifo";
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  }
  static constexpr LogWriter::Limits kLimits{.queue_bytes_max = 1u << 20,
                                             .retry_interval = milliseconds(1)};
  int Add(LogWriter& writer, const std::string& path) {
    return writer.Add(std::make_unique<LogFile>(path, LogRotation{}));
  }
  // Reads until there was `text`, and all that was before.
  static std::string ReadUntil(int fd, const std::string& text) {
    std::string all;
    char buffer[65536];
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    while (all.find(text) == std::string::npos &&
           poll(&poll_fd, 1, std::chrono::milliseconds(kDeadline).count()) == 1) {
      const ssize_t count = read(fd, buffer, sizeof(buffer));
      if (count <= 0) break;
      all.append(buffer, static_cast<std::size_t>(count));
    }
    return all;
  }
  std::string fifo_;
};

TEST_F(LogWriterTest, WritesEachFileInOrder) {
  const std::shared_ptr<LogWriter> owned = LogWriter::Make(kLimits);
  LogWriter& writer = *owned;
  const int a = Add(writer, path_);
  const int b = Add(writer, folder_ + "/b.log");
  ASSERT_TRUE(WaitUntilOpen(writer).ok());
  std::string said;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    said += line;
    writer.Append(a, line);
    writer.Append(b, "b");
  }
  writer.Close(a);
  EXPECT_TRUE(writer.Flush(kDeadline, kDeadline));
  EXPECT_EQ(Content(path_), said);
  EXPECT_EQ(Content(folder_ + "/b.log"), std::string(1000, 'b'));
  EXPECT_EQ(writer.waiting_bytes(), 0u);
}

TEST_F(LogWriterTest, AFileThatCannotBeOpenedIsNamed) {
  const std::shared_ptr<LogWriter> owned = LogWriter::Make(kLimits);
  LogWriter& writer = *owned;
  std::ofstream(folder_ + "/plain") << "x";
  Add(writer, path_);
  const int bad = Add(writer, folder_ + "/plain/sub/stdout.log");
  const absl::Status status = WaitUntilOpen(writer);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot make the log folder"));
  writer.Close(bad);
  EXPECT_TRUE(WaitUntilOpen(writer).ok());
}

TEST_F(LogWriterTest, ADiskThatDoesNotAnswerHoldsNobodyUp) {
  const std::shared_ptr<LogWriter> owned = LogWriter::Make(kLimits);
  LogWriter& writer = *owned;
  const int file = Add(writer, fifo_);  // to be opened for writing waits for a reader
  EXPECT_EQ(writer.Opened(), std::nullopt);
  writer.GoOnUnopened(milliseconds(1));
  EXPECT_THAT(writer.TakeNotices(), ElementsAre(HasSubstr("has not answered for 1 ms")));
  writer.Append(file, "first\n");
  EXPECT_FALSE(writer.Flush(milliseconds(1), kDeadline));
  EXPECT_EQ(writer.waiting_bytes(), 6u);
  const OwnedFd reader(open(fifo_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadUntil(reader.get(), "first\n"), "first\n");
}

TEST_F(LogWriterTest, BeyondTheLimitWholeLinesAreMissingAndCounted) {
  const std::shared_ptr<LogWriter> owned = LogWriter::Make(kLimits);
  LogWriter& writer = *owned;
  const OwnedFd reader(open(fifo_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const int file = Add(writer, fifo_);
  ASSERT_TRUE(WaitUntilOpen(writer).ok());
  const std::string line = std::string(999, 'x') + "\n";
  constexpr int kLines = 3000;
  for (int i = 0; i < kLines; ++i) writer.Append(file, line);
  EXPECT_GT(writer.lost_lines(), 0u);
  EXPECT_LE(writer.waiting_bytes(), kLimits.queue_bytes_max);
  EXPECT_THAT(writer.TakeNotices(), ElementsAre(HasSubstr("lines are missing")));
  const std::uint64_t lost = writer.lost_lines();
  writer.Close(file);
  fcntl(reader.get(), F_SETFL, 0);
  const std::string note = std::to_string(lost) + " lines are missing here";
  const std::string all = ReadUntil(reader.get(), note);
  EXPECT_EQ(all.find(note), (kLines - lost) * line.size() + std::string("ddprun: ").size());
}

TEST_F(LogWriterTest, ADiskThatRefusesIsSaidOnceAndTriedAgain) {
  const std::shared_ptr<LogWriter> owned = LogWriter::Make(kLimits);
  LogWriter& writer = *owned;
  const int file = Add(writer, path_);
  ASSERT_TRUE(WaitUntilOpen(writer).ok());
  // A soft limit of the size of files stands for a disk that is full.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4;
  setrlimit(RLIMIT_FSIZE, &small);
  writer.Append(file, "12345678\n");
  EXPECT_FALSE(writer.Flush(milliseconds(50), kDeadline));
  EXPECT_THAT(writer.TakeNotices(), ElementsAre(HasSubstr("File too large; the run goes on")));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(writer.Flush(kDeadline, kDeadline));
  EXPECT_THAT(writer.TakeNotices(), ElementsAre("the log files are written again"));
  EXPECT_EQ(Content(path_), "12345678\n");
}

}  // namespace
}  // namespace ddprun
