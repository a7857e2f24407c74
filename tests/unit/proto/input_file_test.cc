// SPDX-License-Identifier: Apache-2.0
#include "proto/input_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace ddprun {
namespace {

constexpr std::size_t kMax = 100;

std::string OwnPath(int fd) { return "/dev/fd/" + std::to_string(fd); }

class InputFileTest : public ::testing::Test {
 protected:
  InputFileTest() {
    std::string pattern = ::testing::TempDir() + "ddprun-input-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~InputFileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

TEST_F(InputFileTest, AFileOfUpToTheLimit) {
  std::ofstream(Path("file")) << std::string(kMax, 'x');
  auto file = ReadInput(Path("file"), kMax);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->text, std::string(kMax, 'x'));
  EXPECT_TRUE(file->is_regular);
  EXPECT_EQ(ReadInput(Path("file"), kMax - 1).status().message(), "it has more than 99 bytes");
  EXPECT_TRUE(absl::IsNotFound(ReadInput(Path("none"), kMax).status()));
  EXPECT_EQ(ReadInput(folder_, kMax).status().message(), "Is a directory");
  EXPECT_EQ(ReadInput("/dev/zero", kMax).status().message(), "it has more than 100 bytes");
}

TEST_F(InputFileTest, ARegularFileTakesItsOwnSizeHoweverHighTheLimit) {
  constexpr std::size_t kHigh = 1u << 30;
  std::ofstream(Path("file")) << std::string(kMax, 'x');
  const auto file = ReadRegularFile(Path("file"), kHigh);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file, std::string(kMax, 'x'));
  EXPECT_LT(file->capacity(), 10 * kMax);
  EXPECT_EQ(ReadRegularFile(Path("file"), kMax)->size(), kMax);
  EXPECT_EQ(ReadRegularFile(Path("file"), kMax - 1).status().message(),
            "it has more than 99 bytes");
  // A file that does not tell its size, of more than a page.
  const auto maps = ReadRegularFile("/proc/self/smaps", kHigh);
  ASSERT_TRUE(maps.ok()) << maps.status();
  EXPECT_GT(maps->size(), 10'000u);
  EXPECT_TRUE(absl::StrContains(*maps, "[stack]"));
}

TEST_F(InputFileTest, APipeWhoseWriterIsGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "lr: 1", 5), 5);
  close(ends[1]);
  auto file = ReadInput(OwnPath(ends[0]), kMax);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->text, "lr: 1");
  EXPECT_FALSE(file->is_regular);
  EXPECT_EQ(ReadInput(OwnPath(ends[0]), kMax)->text, "");
  close(ends[0]);
}

TEST_F(InputFileTest, ASocketWhichCannotBeOpened) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_EQ(write(ends[1], "lr: 1", 5), 5);
  close(ends[1]);
  EXPECT_EQ(ReadInput(OwnPath(ends[0]), kMax)->text, "lr: 1");
  close(ends[0]);
}

TEST_F(InputFileTest, AFifoIsWaitedForUntilSomethingIsWritten) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  // Blocks until the reader is there.
  std::thread writer([&] {
    std::ofstream fifo(Path("fifo"));
    fifo << "lr: " << std::flush << "2";
  });
  auto file = ReadInput(Path("fifo"), kMax);
  writer.join();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->text, "lr: 2");
}

}  // namespace
}  // namespace ddprun
