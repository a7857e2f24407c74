// SPDX-License-Identifier: Apache-2.0
#include "launcher/notices/notice_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

NoticeLook There(const std::string& id, std::optional<milliseconds> remaining = seconds(5)) {
  return {.id = id, .remaining = remaining, .reason = "the file " + id};
}

// "5000: the file /x, -: the file /x": what was given, and withdrawn.
std::string Changes(const std::vector<NoticeChange>& changes) {
  std::string text;
  for (const NoticeChange& change : changes) {
    if (!text.empty()) text += ", ";
    if (const auto* given = std::get_if<NoticeGiven>(&change)) {
      absl::StrAppend(&text, given->remaining.count(), ": ", given->reason);
    } else {
      absl::StrAppend(&text, "-: ", std::get<NoticeWithdrawn>(change).reason);
    }
  }
  return text;
}

TEST(NoticeRulesTest, EachAppearanceIsOneNotice) {
  NoticeRules rules(seconds(30));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Changes(rules.OnLook(There("/x"))), "5000: the file /x");
    EXPECT_EQ(Changes(rules.OnLook(There("/x", seconds(4)))), "");
    NoticeLook hangs;
    hangs.error = "hangs";
    EXPECT_EQ(Changes(rules.OnLook(hangs)), "");
    EXPECT_EQ(Changes(rules.OnLook(There("/x", seconds(3)))), "") << "an error is no absence";
    EXPECT_EQ(Changes(rules.OnLook({})), "-: the file /x");
    EXPECT_EQ(Changes(rules.OnLook({})), "");
  }
}

TEST(NoticeRulesTest, AnotherNoticeTakesThePlaceOfTheFirst) {
  NoticeRules rules(seconds(30));
  rules.OnLook(There("a"));
  EXPECT_EQ(Changes(rules.OnLook(There("b", std::nullopt))), "-: the file a, 30000: the file b");
}

TEST(NoticeRulesTest, WhatIsUnsureIsLookedAtTwice) {
  NoticeRules rules(seconds(30));
  NoticeLook unsure = There("/x", std::nullopt);
  unsure.unsure = true;
  EXPECT_EQ(Changes(rules.OnLook(unsure)), "");
  EXPECT_EQ(Changes(rules.OnLook(There("/x", seconds(90)))), "90000: the file /x");
  NoticeRules touched(seconds(30));
  EXPECT_EQ(Changes(touched.OnLook(unsure)), "");
  EXPECT_EQ(Changes(touched.OnLook(unsure)), "30000: the file /x");
  EXPECT_EQ(Changes(touched.OnLook(unsure)), "");
}

class NoticeWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/notice_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::optional<milliseconds> TimeOf(const std::string& text) {
    std::ofstream(folder_ / "x") << text;
    return LookAtNoticeFile(folder_ / "x").remaining;
  }
  NoticeWatch Watch(const NoticeOptions& options) {
    return NoticeWatch(
        options,
        [this](const std::string& name) -> std::optional<std::string> {
          const auto found = variables_.find(name);
          if (found == variables_.end()) return std::nullopt;
          return found->second;
        },
        background_);
  }
  // Begins a look, and takes its result.
  std::vector<NoticeChange> Look(NoticeWatch& watch) {
    EXPECT_TRUE(watch.OnTurn(now_, problem_).empty());
    pollfd done{.fd = background_.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&done, 1, 30'000), 1);
    background_.ClearNotice();
    std::vector<NoticeChange> changes = watch.OnTurn(now_, problem_);
    now_ = *watch.NextDeadline();
    return changes;
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> variables_;
  const Background background_;
  TimePoint now_{seconds(1000)};
  std::optional<std::string> problem_;
};

TEST_F(NoticeWatchTest, AFilesTextMayBeTheTime) {
  EXPECT_EQ(TimeOf(" 120 \n"), seconds(120));
  EXPECT_EQ(TimeOf("0.5"), milliseconds(500));
  EXPECT_EQ(TimeOf("0"), milliseconds(0));
  EXPECT_EQ(TimeOf("1e300"), kNoticeMax);
  for (const char* other : {"-1", "nan", "{\"action\": \"terminate\"}", "120 s", "\n"})
    EXPECT_EQ(TimeOf(other), std::nullopt) << other;
}

TEST_F(NoticeWatchTest, AFolderThatIsNotThereIsNoError) {
  for (const auto& path : {folder_ / "x", folder_ / "no" / "x"}) {
    const NoticeLook look = LookAtNoticeFile(path);
    EXPECT_TRUE(look.id.empty() && look.error.empty()) << path;
  }
  std::ofstream(folder_ / "file") << "x";
  EXPECT_TRUE(LookAtNoticeFile(folder_ / "file" / "x").error.empty());
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_FALSE(LookAtNoticeFile(folder_ / "loop").error.empty());
}

// Whoever names a pipe or a folder gets a notice, and no agent that waits for ever.
TEST_F(NoticeWatchTest, WhateverIsThereIsANotice) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  for (const auto& path : {folder_ / "fifo", folder_}) {
    const NoticeLook look = LookAtNoticeFile(path);
    EXPECT_TRUE(look.id == path && look.unsure && look.error.empty()) << path;
  }
}

TEST_F(NoticeWatchTest, AFileIsFoundAtTheNextLook) {
  const std::filesystem::path path = folder_ / "x";
  NoticeWatch watch = Watch({.source = NoticeSource::kFile, .file = path});
  EXPECT_EQ(Changes(Look(watch)), "");
  std::ofstream(path) << "77";
  EXPECT_EQ(Changes(Look(watch)), absl::StrCat("77000: the file ", path.string()));
  EXPECT_EQ(Changes(Look(watch)), "");
  std::filesystem::remove(path);
  EXPECT_EQ(Changes(Look(watch)), absl::StrCat("-: the file ", path.string()));
  EXPECT_FALSE(problem_);
}

TEST_F(NoticeWatchTest, AProblemIsToldOnce) {
  std::filesystem::create_symlink("loop", folder_ / "loop");
  NoticeWatch watch = Watch({.source = NoticeSource::kFile, .file = folder_ / "loop"});
  Look(watch);
  EXPECT_THAT(problem_.value_or(""),
              HasSubstr(absl::StrCat("--preempt-notice cannot look for ",
                                     (folder_ / "loop").string(), ": Too many levels")));
  problem_.reset();
  Look(watch);
  EXPECT_FALSE(problem_);
}

TEST_F(NoticeWatchTest, AServerThatIsNotThereIsNamedOnce) {
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1";
  NoticeWatch watch = Watch({.source = NoticeSource::kAws});
  EXPECT_EQ(Changes(Look(watch)), "");
  EXPECT_THAT(problem_.value_or(""),
              HasSubstr("cannot look for the metadata server at 127.0.0.1:1: Connection refused; "
                        "the run goes on"));
  problem_.reset();
  Look(watch);
  EXPECT_FALSE(problem_);
}

TEST_F(NoticeWatchTest, WhatComesAsASignalIsNotLookedFor) {
  for (const NoticeSource source : {NoticeSource::kNone, NoticeSource::kKubernetes}) {
    NoticeWatch watch = Watch({.source = source});
    EXPECT_TRUE(watch.OnTurn(now_, problem_).empty());
    EXPECT_EQ(watch.NextDeadline(), std::nullopt);
  }
}

TEST_F(NoticeWatchTest, TheEndOfASlurmJobIsANoticeInTime) {
  const NoticeOptions options{.source = NoticeSource::kSlurm, .grace = seconds(100)};
  variables_["SLURM_JOB_END_TIME"] = absl::StrCat(absl::ToUnixSeconds(absl::Now()) + 130);
  NoticeWatch early = Watch(options);
  EXPECT_TRUE(early.OnTurn(now_, problem_).empty());
  EXPECT_LE(*early.NextDeadline(), now_ + seconds(30));
  EXPECT_GT(*early.NextDeadline(), now_ + seconds(25));
  variables_["SLURM_JOB_END_TIME"] = absl::StrCat(absl::ToUnixSeconds(absl::Now()) + 60);
  NoticeWatch late = Watch(options);
  const auto changes = late.OnTurn(now_, problem_);
  ASSERT_EQ(changes.size(), 1u);
  const auto& given = std::get<NoticeGiven>(changes[0]);
  EXPECT_EQ(given.reason, "slurm: the job's time limit");
  EXPECT_GT(given.remaining, seconds(55));
  EXPECT_LE(given.remaining, seconds(60));
  EXPECT_EQ(late.NextDeadline(), std::nullopt);
  EXPECT_FALSE(problem_);
  variables_.clear();
  NoticeWatch outside = Watch(options);
  EXPECT_TRUE(outside.OnTurn(now_, problem_).empty());
  EXPECT_THAT(problem_.value_or(""), HasSubstr("SLURM_JOB_END_TIME is not set"));
}

}  // namespace
}  // namespace ddprun
