// SPDX-License-Identifier: Apache-2.0
#include "proto/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kSomebodyElse = 12345;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() {
    std::string pattern = ::testing::TempDir() + "ddprun-output-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  static std::string Contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static mode_t TypeOf(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, AFileIsReplacedAndNothingElseIsLeft) {
  Put("v.json", "old and longer");
  ASSERT_TRUE(WriteWholeFile(Path("v.json"), "new").ok());
  EXPECT_EQ(Contents(Path("v.json")), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(OutputFileTest, ADeviceIsWrittenToAndStays) {
  if (mknod(Path("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    GTEST_SKIP() << "a device node needs root";
  if (access(Path("null").c_str(), W_OK) != 0) GTEST_SKIP() << "mounted with nodev";
  EXPECT_EQ(WriteWholeFile(Path("null"), "text"), absl::OkStatus());
  EXPECT_EQ(TypeOf(Path("null")), static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(CheckOutput(Path("null")), absl::OkStatus());
}

TEST_F(OutputFileTest, ALinkIsWrittenThrough) {
  Put("target", "old");
  fs::create_symlink("target", Path("link"));
  fs::create_symlink("link", Path("link of a link"));
  fs::create_symlink("not there yet", Path("dangling"));
  EXPECT_EQ(WriteWholeFile(Path("link of a link"), "new"), absl::OkStatus());
  EXPECT_EQ(WriteWholeFile(Path("dangling"), "made"), absl::OkStatus());
  EXPECT_EQ(Contents(Path("target")), "new");
  EXPECT_EQ(Contents(Path("not there yet")), "made");
  EXPECT_EQ(TypeOf(Path("link")), static_cast<mode_t>(S_IFLNK));
  EXPECT_EQ(TypeOf(Path("dangling")), static_cast<mode_t>(S_IFLNK));
}

TEST_F(OutputFileTest, LinksThatGoInACircleAreAnError) {
  fs::create_symlink("b", Path("a"));
  fs::create_symlink("a", Path("b"));
  EXPECT_THAT(std::string(WriteWholeFile(Path("a"), "").message()), HasSubstr("symbolic links"));
}

TEST_F(OutputFileTest, ALinkOfAnotherUserInASharedFolderIsNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "a link of another user needs root";
  const std::string victim = Put("victim", "precious");
  fs::create_directory(Path("shared"));
  const std::string link = Path("shared/v.json");
  fs::create_symlink(victim, link);
  ASSERT_EQ(lchown(link.c_str(), kSomebodyElse, kSomebodyElse), 0);
  ASSERT_EQ(chmod(Path("shared").c_str(), 01777), 0);
  const absl::Status status = WriteWholeFile(link, "text");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a link of another user"));
  EXPECT_EQ(Contents(victim), "precious");
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOutput(link)));
  // As the kernel has it: not in a folder that is the user's own.
  ASSERT_EQ(chmod(Path("shared").c_str(), 0755), 0);
  EXPECT_EQ(WriteWholeFile(link, "text"), absl::OkStatus());
}

TEST_F(OutputFileTest, APlantedTemporaryNameIsNotFollowed) {
  const std::string victim = Put("victim", "precious");
  fs::create_symlink(victim, Path("v.json." + std::to_string(getpid()) + ".tmp"));
  EXPECT_EQ(WriteWholeFile(Path("v.json"), "text"), absl::OkStatus());
  EXPECT_EQ(Contents(victim), "precious");
  EXPECT_EQ(Contents(Path("v.json")), "text");
  const int fd = CreateOwnFile(Path("own"), 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  fs::remove(Path("own"));
  fs::create_symlink(victim, Path("own"));
  const int again = CreateOwnFile(Path("own"), 0600);
  ASSERT_GE(again, 0);
  close(again);
  EXPECT_EQ(TypeOf(Path("own")), static_cast<mode_t>(S_IFREG));
  EXPECT_EQ(Contents(victim), "precious");
}

TEST_F(OutputFileTest, AFifoIsWrittenToAndOneWithoutAReaderIsAnErrorAtOnce) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(WriteWholeFile(Path("fifo"), "text").message(),
            "cannot write " + Path("fifo") + ": it is a FIFO that nothing reads from");
  EXPECT_EQ(CheckOutput(Path("fifo")), absl::OkStatus());  // the reader may come later
  const int reader = open(Path("fifo").c_str(), O_RDONLY | O_NONBLOCK);
  // More than fits into it.
  const std::string text(300'000, 'x');
  std::string read_text;
  std::thread thread([&] {
    char bytes[4096];
    while (read_text.size() < text.size()) {
      const ssize_t count = read(reader, bytes, sizeof bytes);
      if (count > 0) read_text.append(bytes, static_cast<std::size_t>(count));
    }
  });
  EXPECT_EQ(WriteWholeFile(Path("fifo"), text), absl::OkStatus());
  thread.join();
  close(reader);
  EXPECT_EQ(read_text, text);
  EXPECT_EQ(TypeOf(Path("fifo")), static_cast<mode_t>(S_IFIFO));
}

TEST_F(OutputFileTest, AStreamOfThisProcessIsUsedAsItIs) {
  EXPECT_EQ(OwnDescriptor("/dev/stdout"), 1);
  EXPECT_EQ(OwnDescriptor("/dev/fd/63"), 63);
  EXPECT_EQ(OwnDescriptor("/proc/self/fd/7"), 7);
  EXPECT_EQ(OwnDescriptor("/dev/fd/x"), -1);
  EXPECT_EQ(OwnDescriptor("/dev/null"), -1);
  const int fd = open(Path("log").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(write(fd, "before ", 7), 7);
  EXPECT_EQ(WriteWholeFile("/dev/fd/" + std::to_string(fd), "text"), absl::OkStatus());
  ASSERT_EQ(write(fd, " after", 6), 6);
  close(fd);
  EXPECT_EQ(Contents(Path("log")), "before text after");
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsFoundBefore) {
  EXPECT_EQ(CheckOutput(Path("new")), absl::OkStatus());
  EXPECT_EQ(CheckOutput(Put("there", "")), absl::OkStatus());
  EXPECT_EQ(CheckOutput(Path("no/such/v.json")).message(),
            "its folder " + Path("no/such") + " cannot be used: No such file or directory");
  EXPECT_EQ(CheckOutput(folder_).message(), "Is a directory");
}

}  // namespace
}  // namespace ddprun
