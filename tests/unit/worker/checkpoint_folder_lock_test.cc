// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLock Take(const FolderLock::Options& options) {
    return FolderLock(files_.folder(), options,
                      [this](const auto& text) { told_.push_back(text); });
  }

  TempFiles files_;
  std::vector<std::string> told_;
};

TEST_F(FolderLockTest, ASecondTrainingIsRefusedAndTheHolderNamed) {
  std::optional<FolderLock> first;
  first.emplace(files_.folder(), FolderLock::Options{.run = "job7"}, [](const auto&) {});
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { Take({.run = "job8"}); }),
              AllOf(HasSubstr(files_.folder() + " is in use by another training"),
                    HasSubstr("process " + std::to_string(getpid())), HasSubstr("of run job7")));
  // The same name is no proof: two jobs may have it.
  MessageOf<std::runtime_error>([&] { Take({.run = "job7"}); });
  first.reset();
  EXPECT_TRUE(Take({.run = "job8"}).held());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(FolderLockTest, ItEndsWithItsProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock = Take({.run = "job7"});
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  MessageOf<std::runtime_error>([&] { Take({.run = "job8"}); });
  kill(child, SIGKILL);
  // A restart waits for the process whose place it takes.
  EXPECT_TRUE(Take({.run = "job7", .restarted = true}).held());
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FolderLockTest, AProcessOfTheSameRunThatDoesNotEndHoldsNoRestartUp) {
  const FolderLock first = Take({.run = "job7"});
  const FolderLock::Options restart{
      .run = "job7", .restarted = true, .patience = std::chrono::milliseconds(1)};
  EXPECT_FALSE(Take(restart).held());
  EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr("still locked by process"),
                                       HasSubstr("goes on without the lock"))));
  const FolderLock::Options other{
      .run = "job8", .restarted = true, .patience = std::chrono::milliseconds(1)};
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { Take(other); }), HasSubstr("in use by another"));
}

// A file as older versions left it, which everybody may read.
class ReadLockFile {
 public:
  explicit ReadLockFile(const TempFiles& files)
      : path_(files.Write("training.lock", "{\"run\": \"job7\", \"host\": \"a\", \"pid\": 1}\n")) {
    chmod(path_.c_str(), 0644);
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~ReadLockFile() { close(fd_); }
  ReadLockFile(const ReadLockFile&) = delete;
  ReadLockFile& operator=(const ReadLockFile&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  const std::string path_;
  int fd_ = -1;
};

TEST_F(FolderLockTest, WhoMayOnlyReadTheFileKeepsNoTrainingOut) {
  const ReadLockFile reader(files_);
  ASSERT_EQ(flock(reader.fd(), LOCK_EX | LOCK_NB), 0);
  const FolderLock first = Take({.run = "job8"});
  EXPECT_TRUE(first.held());
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { Take({.run = "job9"}); }),
              HasSubstr("is in use by another training (process " + std::to_string(getpid())));
}

// A read lock is all that fcntl() gives a reader; no training has one.
TEST_F(FolderLockTest, AReadLockIsNoTraining) {
  const ReadLockFile reader(files_);
  struct flock whole {};
  whole.l_type = F_RDLCK;
  whole.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(reader.fd(), F_OFD_SETLK, &whole), 0);
  EXPECT_FALSE(Take({.run = "job7"}).held());
  EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr(reader.path() + " cannot be locked: a process"),
                                       HasSubstr("would not be noticed; end that process"))));
}

// Another user's training in a folder of both: his file can be read, but not written.
TEST_F(FolderLockTest, AnotherUsersTrainingIsSeen) {
  chmod(files_.folder().c_str(), 0755);
  std::optional<FolderLock> first;
  first.emplace(files_.folder(), FolderLock::Options{.run = "job7"}, [](const auto&) {});
  chmod(files_.Path("training.lock").c_str(), 0444);
  // 0: refused, 1: told that it goes on without the lock, 2: anything else.
  const auto as_another_user = [this] {
    const pid_t child = fork();
    if (child == 0) {
      if (geteuid() == 0 && seteuid(12345) != 0) _exit(2);
      try {
        const bool held = Take({.run = "job8"}).held();
        _exit(!held && told_.size() == 1 ? 1 : 2);
      } catch (const std::runtime_error&) {
        _exit(0);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(as_another_user(), 0);
  first.reset();
  EXPECT_EQ(as_another_user(), 1);
}

TEST_F(FolderLockTest, WhereThereCanBeNoLockItSaysSo) {
  std::filesystem::create_directory(files_.Path("training.lock"));
  EXPECT_FALSE(Take({}).held());
  EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr("training.lock cannot be locked: Is a directory"),
                                       HasSubstr("would not be noticed"))));
}

}  // namespace
}  // namespace ddprun
