// SPDX-License-Identifier: Apache-2.0
// What ends a save, or lets it fail: kill -9 at every system call, and a disk that is full at every
// offset. A good checkpoint is there afterwards, what was acknowledged is the newest, and the next
// save is as if nothing had been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "tests/testing/kill_at_system_call.h"
#include "tests/testing/small_disk.h"
#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/checkpoint/checkpoint_writer.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kLimit{60};

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// What a save of `step` said: empty if it is on the disk.
std::string ErrorOf(CheckpointWriter& writer, std::int64_t step) {
  if (!writer.Save(step, SmallSnapshot(step)) || !writer.WaitUntilSaved(kLimit)) return "hangs";
  const auto reports = writer.TakeReports();
  return reports.size() == 1 ? reports.front().error : "no report";
}

CheckpointWriter::Options InFolder(const std::string& folder) {
  return {.folder = folder, .training = "t", .keep = 2};
}

// ---- Killed at every system call

// Saves step 3 where 1 and 2 are, and says so.
[[noreturn]] void SaveOnce(const std::string& folder, int acknowledge) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
  raise(SIGSTOP);
  {
    CheckpointWriter writer(InFolder(folder));
    if (!ErrorOf(writer, 3).empty()) _exit(1);
    if (write(acknowledge, "3", 1) != 1) _exit(1);
  }
  _exit(0);
}

TEST(CheckpointCrashTest, KilledAtEverySystemCallThereIsAGoodCheckpoint) {
  int killed = 0;
  bool saw_old = false;
  bool saw_new = false;
  bool saw_temporary = false;
  for (int stops = 0;; ++stops) {
    ASSERT_LT(stops, 5000) << "it does not end";
    const TempFiles files;
    const std::string folder = files.folder();
    WriteSmall(folder, 1);
    WriteSmall(folder, 2);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) SaveOnce(folder, ends[1]);
    close(ends[1]);
    const bool was_killed = KillAfter(child, stops);
    char byte = 0;
    const bool acknowledged = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    saw_temporary |= NamesIn(folder).back().find(".tmp.") != std::string::npos;
    const auto found = FindNewest(
        folder, "t", [&](const std::string& text) { ADD_FAILURE() << text << " after " << stops; });
    ASSERT_TRUE(found) << stops;
    const auto step = found->snapshot.about.value("step", 0);
    ExpectStep(found->snapshot, step);
    ASSERT_TRUE(step == 3 || (step == 2 && !acknowledged)) << step << " after " << stops;
    ASSERT_GE(ListCheckpoints(folder).size(), 2u) << stops;
    if (!was_killed && stops == 0) GTEST_SKIP() << "this user may not trace processes here";
    // Whoever comes next tidies up.
    CheckpointWriter writer(InFolder(folder));
    ASSERT_EQ(ErrorOf(writer, 4), "");
    EXPECT_EQ(NamesIn(folder).size(), 2u) << stops;
    ASSERT_FALSE(HasFailure()) << stops;
    if (!was_killed) {
      ASSERT_TRUE(acknowledged);
      break;
    }
    ++killed;
    (step == 3 ? saw_new : saw_old) = true;
  }
  EXPECT_GT(killed, 30);
  EXPECT_TRUE(saw_old);
  EXPECT_TRUE(saw_new);
  EXPECT_TRUE(saw_temporary);
}

// ---- A full disk

// Files of this process end at `bytes`, as if the disk did.
void LimitFiles(rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(CheckpointFullDiskTest, AtEveryOffsetTheOldOnesStayAndTheNextSaveIsTried) {
  const auto before = signal(SIGXFSZ, SIG_IGN);
  const TempFiles files;
  const std::string folder = files.folder();
  CheckpointWriter writer(InFolder(folder));
  ASSERT_EQ(ErrorOf(writer, 1), "");
  ASSERT_EQ(ErrorOf(writer, 2), "");
  const std::vector<std::string> names = NamesIn(folder);
  const auto size = std::filesystem::file_size(files.Path(CheckpointName(2)));
  for (rlim_t offset = 0; offset < size; ++offset) {
    LimitFiles(offset);
    const std::string error = ErrorOf(writer, 3);
    LimitFiles(RLIM_INFINITY);
    ASSERT_THAT(error, HasSubstr("step 3 is not saved: cannot write")) << offset;
    ASSERT_EQ(NamesIn(folder), names) << offset;
  }
  for (const std::int64_t step : {1, 2})
    ExpectStep(ReadCheckpoint(files.Path(CheckpointName(step))), step);
  EXPECT_EQ(ErrorOf(writer, 3), "");
  ExpectStep(ReadCheckpoint(files.Path(CheckpointName(3))), 3);
  signal(SIGXFSZ, before);
}

// Each save is larger than the one before, until there is no room; then somebody makes some.
void FillUp(const std::string& folder) {
  const auto save = [&](CheckpointWriter& writer, std::int64_t step) {
    Snapshot snapshot = SmallSnapshot(step);
    snapshot.tensors.emplace_back("optimizer/weight", at::ones({step * 100}));
    EXPECT_TRUE(writer.Save(step, std::move(snapshot)));
    EXPECT_TRUE(writer.WaitUntilSaved(kLimit));
    return writer.TakeReports().at(0).error;
  };
  CheckpointWriter writer(InFolder(folder));
  std::string error;
  std::int64_t step = 0;
  while (error.empty() && step < 10'000) error = save(writer, ++step);
  EXPECT_THAT(error, HasSubstr("No space left on device"));
  if (step > 1) {
    const auto found = FindNewest(folder, "t", [](const std::string& t) { ADD_FAILURE() << t; });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->snapshot.about.value("step", std::int64_t{0}), step - 1);
  }
  for (const std::string& name : NamesIn(folder))
    EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
  ASSERT_TRUE(EnlargeSmallDisk(folder));
  EXPECT_EQ(save(writer, step + 1), "");
}

TEST(CheckpointFullDiskTest, ASmallFileSystemKeepsTheOldOnes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small file system";
  constexpr std::size_t kPage = 4096;
  for (std::size_t pages = 1; pages < 16; ++pages) {
    SCOPED_TRACE(pages);
    const TempFiles files;
    if (!RunOnSmallDisk(files.folder(), pages * kPage, [&] { FillUp(files.folder()); }))
      GTEST_SKIP() << "this user may not mount here";
  }
}

}  // namespace
}  // namespace ddprun
