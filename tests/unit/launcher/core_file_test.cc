// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_evidence.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

TEST(CoreFileTest, ThePatternIsFilledIn) {
  CoreQuestion question{.pattern = "core", .folder = "/work", .pid = 7, .signal = 11};
  EXPECT_EQ(CorePathPattern(question), "/work/core");
  question.uses_pid = true;
  EXPECT_EQ(CorePathPattern(question), "/work/core.7");
  question.pattern = "/var/core/%e-%p-%s-%t.100%%";
  EXPECT_EQ(CorePathPattern(question), "/var/core/*-7-11-*.100%");
  question.pattern = "%";
  EXPECT_EQ(CorePathPattern(question), "/work/.7");
  question.pattern = "|/usr/share/apport/apport %p";
  EXPECT_EQ(CorePathPattern(question), "");
}

TEST(CoreFileTest, OnlyACoreThatIsThereIsNamed) {
  std::string folder = (std::filesystem::temp_directory_path() / "ddprun-core-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const CoreQuestion question{.pattern = "core.%e.%p", .folder = folder, .pid = 7};
  EXPECT_EQ(FindCore(question), "");
  std::filesystem::create_directory(folder + "/core.dir.7");
  EXPECT_EQ(FindCore(question), "");
  std::ofstream(folder + "/core.train.7") << "x";
  EXPECT_EQ(FindCore(question), folder + "/core.train.7");
  std::filesystem::remove_all(folder);
}

TEST(CoreFileTest, ACoreThatIsOlderThanTheProcessIsAnothers) {
  using std::chrono::hours;
  std::string folder = (std::filesystem::temp_directory_path() / "ddprun-core-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/core.7") << "x";
  CoreQuestion question{.pattern = "core.%p", .folder = folder, .pid = 7};
  question.started = std::chrono::system_clock::now() + hours(1);
  EXPECT_EQ(FindCore(question), "");
  question.started -= hours(2);
  EXPECT_EQ(FindCore(question), folder + "/core.7");
  std::filesystem::remove_all(folder);
}

TEST(CoreFileTest, AProgramThatTakesCoresIsNamed) {
  EXPECT_EQ(FindCore({.pattern = "|/lib/systemd/systemd-coredump %P %u", .pid = 7}),
            "`coredumpctl info 7`");
  EXPECT_EQ(FindCore({.pattern = "|/usr/share/apport/apport %p", .pid = 7}),
            "given to /usr/share/apport/apport (kernel.core_pattern)");
}

}  // namespace
}  // namespace ddprun
