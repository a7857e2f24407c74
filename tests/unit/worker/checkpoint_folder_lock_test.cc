// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
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

TEST_F(FolderLockTest, WhereThereCanBeNoLockItSaysSo) {
  std::filesystem::create_directory(files_.Path("training.lock"));
  EXPECT_FALSE(Take({}).held());
  EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr("training.lock cannot be locked: Is a directory"),
                                       HasSubstr("would not be noticed"))));
}

}  // namespace
}  // namespace ddprun
