// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/append_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ddprun {
namespace {

class AppendFileTest : public testing::Test {
 protected:
  AppendFileTest() {
    path_ = std::filesystem::path(testing::TempDir()) / ("append_file_" + std::to_string(getpid()));
  }
  ~AppendFileTest() override { std::filesystem::remove(path_); }

  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::filesystem::path path_;
};

// A disk that holds so many bytes of a file.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(AppendFileTest, AppendsAndKeepsWhatItIsTold) {
  {
    AppendFile file;
    ASSERT_EQ(file.Open(path_, 0), 0);
    file.Add("one\n");
    file.Add("two\n");
    ASSERT_EQ(file.Flush(), 0);
    EXPECT_EQ(Content(), "one\ntwo\n");
  }
  AppendFile file;
  ASSERT_EQ(file.Open(path_, 4), 0);
  file.Add("three\n");
  ASSERT_EQ(file.Flush(), 0);
  EXPECT_EQ(Content(), "one\nthree\n");
}

TEST_F(AppendFileTest, FullDiskLeavesWholeRecordsAtEveryOffset) {
  for (rlim_t room = 0; room < 12; ++room) {
    std::filesystem::remove(path_);
    AppendFile file;
    ASSERT_EQ(file.Open(path_, 0), 0);
    file.Add("first\n");
    {
      const SmallDisk disk(room);
      const int error = file.Flush();
      EXPECT_EQ(error, room >= 6 ? 0 : EFBIG);
      EXPECT_EQ(Content(), room >= 6 ? "first\n" : "");
      file.Add("second\n");
      EXPECT_EQ(file.Flush(), EFBIG);
      EXPECT_EQ(Content(), room >= 6 ? "first\n" : "");
    }
    EXPECT_EQ(file.Flush(), 0);
    EXPECT_EQ(Content(), "first\nsecond\n") << "once there is room again";
  }
}

TEST_F(AppendFileTest, KeepsABoundedAmountInMemory) {
  AppendFile file;
  ASSERT_EQ(file.Open(path_, 0), 0);
  const std::string record(AppendFile::kPendingBytes / 4 + 1, 'x');
  for (int i = 0; i < 10; ++i) file.Add(record);
  ASSERT_EQ(file.Flush(), 0);
  EXPECT_EQ(Content().size(), 3 * record.size());
}

// With a reader too: records are written at their places, which a FIFO does not have.
TEST_F(AppendFileTest, AFifoIsAnErrorAndIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  AppendFile file;
  EXPECT_EQ(file.Open(path_, 0), ESPIPE);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(file.Open(path_, 0), ESPIPE);
  file.Add("lost\n");
  EXPECT_EQ(file.Flush(), 0);
  close(reader);
}

TEST_F(AppendFileTest, FileThatCannotBeOpenedIsAnErrorAndNothingMore) {
  AppendFile file;
  EXPECT_EQ(file.Open(path_ / "no" / "folder", 0), ENOENT);
  file.Add("lost\n");
  EXPECT_EQ(file.Flush(), 0);
}

}  // namespace
}  // namespace ddprun
