// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/notice_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

NoticeFileLook There(const std::string& text) { return {.exists = true, .text = text}; }

milliseconds TimeOf(const std::string& text) {
  NoticeFileRules rules("/x", seconds(30));
  const auto given = rules.OnLook(There(text));
  return given ? given->remaining : milliseconds(-1);
}

TEST(NoticeFileRulesTest, EachAppearanceIsOneNotice) {
  NoticeFileRules rules("/x", seconds(30));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(rules.OnLook({}));
    const auto given = rules.OnLook(There("5\n"));
    ASSERT_TRUE(given);
    EXPECT_EQ(given->remaining, seconds(5));
    EXPECT_EQ(given->reason, "the file /x");
    EXPECT_FALSE(rules.OnLook(There("4")));
    EXPECT_FALSE(rules.OnLook({.error = "hangs"}));
    EXPECT_FALSE(rules.OnLook(There("3"))) << "an error is no absence";
  }
}

TEST(NoticeFileRulesTest, WhoWritesTheTimeCreatesTheFileFirst) {
  NoticeFileRules rules("/x", seconds(30));
  EXPECT_FALSE(rules.OnLook(There("")));
  EXPECT_EQ(rules.OnLook(There("90"))->remaining, seconds(90));
  NoticeFileRules touched("/x", seconds(30));
  EXPECT_FALSE(touched.OnLook(There("")));
  EXPECT_EQ(touched.OnLook(There(""))->remaining, seconds(30));
  EXPECT_FALSE(touched.OnLook(There("")));
}

TEST(NoticeFileRulesTest, ItsTextMayBeTheTime) {
  EXPECT_EQ(TimeOf(" 120 \n"), seconds(120));
  EXPECT_EQ(TimeOf("0.5"), milliseconds(500));
  EXPECT_EQ(TimeOf("0"), milliseconds(0));
  EXPECT_EQ(TimeOf("1e300"), kNoticeMax);
  for (const char* other : {"-1", "nan", "{\"action\": \"terminate\"}", "120 s", "\n"})
    EXPECT_EQ(TimeOf(other), seconds(30)) << other;
}

TEST(NoticeFileRulesTest, AProblemIsToldOncePerReason) {
  NoticeFileRules rules("/x", seconds(30));
  EXPECT_THAT(rules.TakeProblem("Permission denied").value_or(""),
              HasSubstr("cannot look for /x (--notice-on-file): Permission denied; "));
  EXPECT_FALSE(rules.TakeProblem("Permission denied"));
  EXPECT_FALSE(rules.TakeProblem(""));
  EXPECT_TRUE(rules.TakeProblem("Permission denied"));
}

class NoticeFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/notice_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(NoticeFileTest, AFolderThatIsNotThereIsNoError) {
  for (const auto& path : {folder_ / "x", folder_ / "no" / "x"}) {
    const NoticeFileLook look = LookAtNoticeFile(path);
    EXPECT_TRUE(!look.exists && look.error.empty()) << path;
  }
  std::ofstream(folder_ / "file") << "x";
  EXPECT_TRUE(LookAtNoticeFile(folder_ / "file" / "x").error.empty());
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_FALSE(LookAtNoticeFile(folder_ / "loop").error.empty());
}

// Whoever names a pipe or a folder gets a notice, and no agent that waits for ever.
TEST_F(NoticeFileTest, WhateverIsThereIsANotice) {
  std::ofstream(folder_ / "file") << std::string(1 << 20, '7');
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(LookAtNoticeFile(folder_ / "file").text.size(), kNoticeFileBytesMax);
  for (const auto& path : {folder_ / "fifo", folder_}) {
    const NoticeFileLook look = LookAtNoticeFile(path);
    EXPECT_TRUE(look.exists && look.text.empty() && look.error.empty()) << path;
  }
}

TEST_F(NoticeFileTest, IsFoundAtTheNextLook) {
  const Background background;
  const std::filesystem::path path = folder_ / "x";
  NoticeFile file(path, seconds(30), background);
  TimePoint now{seconds(1000)};
  std::optional<std::string> problem;
  const auto look = [&] {
    EXPECT_FALSE(file.OnTurn(now, problem));  // begins it
    EXPECT_EQ(file.NextDeadline(), now + kNoticeFileTimeout);
    pollfd done{.fd = background.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&done, 1, 30'000), 1);
    background.ClearNotice();
    auto given = file.OnTurn(now, problem);
    EXPECT_EQ(file.NextDeadline(), now + kNoticeFileInterval);
    now += kNoticeFileInterval;
    return given;
  };
  EXPECT_FALSE(look());
  std::ofstream(path) << "77";
  EXPECT_EQ(look()->remaining, seconds(77));
  EXPECT_FALSE(look());
  EXPECT_FALSE(problem);
}

TEST_F(NoticeFileTest, WithoutAPathNothingIsLookedFor) {
  const Background background;
  NoticeFile file("", seconds(30), background);
  std::optional<std::string> problem;
  EXPECT_FALSE(file.OnTurn(TimePoint{seconds(5)}, problem));
  EXPECT_EQ(file.NextDeadline(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
