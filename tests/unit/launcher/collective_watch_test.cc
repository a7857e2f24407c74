// SPDX-License-Identifier: Apache-2.0
// How a Python worker comes to import the file that watches its collectives.
#include "launcher/collectives/collective_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(CollectiveWatchTest, ItsFolderComesBeforeTheUsersOwn) {
  std::vector<std::string> environment = {"PYTHONPATH=/a:/b", "HOME=/root"};
  AddCollectiveWatch("/run/watch", environment);
  EXPECT_THAT(environment, ElementsAre("PYTHONPATH=/run/watch:/a:/b", "HOME=/root",
                                       "DDPRUN_COLLECTIVE_WATCH=/run/watch"));
  std::vector<std::string> bare;
  AddCollectiveWatch("/run/watch", bare);
  EXPECT_THAT(bare, ElementsAre("DDPRUN_COLLECTIVE_WATCH=/run/watch", "PYTHONPATH=/run/watch"));
}

TEST(CollectiveWatchTest, TheFileIsWrittenAgainWhereItsFolderWasRemoved) {
  const std::string parent = ::testing::TempDir() + "/collective_watch_test";
  std::filesystem::create_directories(parent);
  const std::string folder = parent + "/watch";
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(WriteCollectiveWatch(folder).ok());
    EXPECT_NE(ReadSmallFile(folder + "/sitecustomize.py", 1 << 16).find("class Watch"),
              std::string::npos);
    std::filesystem::remove_all(folder);
  }
  std::filesystem::remove_all(parent);
  EXPECT_FALSE(WriteCollectiveWatch(folder).ok());
}

}  // namespace
}  // namespace ddprun
