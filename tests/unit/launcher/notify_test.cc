// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/base/limits.h"
#include "launcher/notify/notify_schedule.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Form = NotifyTarget::Form;
using Json = nlohmann::json;
using std::chrono::seconds;

constexpr TimePoint kBegin{seconds(1000)};

TEST(NotifyTargetTest, ServicesAreKnownByTheirUrls) {
  struct Case {
    std::string text;
    Form form;
    std::string address;
    std::string name;
  };
  for (const Case& one : std::vector<Case>{
           {"https://hooks.slack.com/services/T0/B0/secret", Form::kSlack, "", "hooks.slack.com"},
           {"slack+http://[::1]:8065/hooks/secret", Form::kSlack, "http://[::1]:8065/hooks/secret",
            "[::1]:8065"},
           {"https://discord.com/api/webhooks/1/secret", Form::kDiscord, "", "discord.com"},
           {"https://ntfy.sh/topic", Form::kNtfy, "", "ntfy.sh"},
           {"ntfy+https://user:secret@push.example/topic", Form::kNtfy,
            "https://user:secret@push.example/topic", "push.example"},
           {"https://hooks.slack.com.evil.example/x", Form::kJson, "",
            "hooks.slack.com.evil.example"},
           {"http://127.0.0.1:9/hook?key=secret", Form::kJson, "", "127.0.0.1:9"},
           {"./tell.sh --to https://x", Form::kProgram, "", "'./tell.sh --to https://x'"}}) {
    const auto target = ParseNotifyTarget(one.text);
    ASSERT_TRUE(target.ok()) << one.text;
    EXPECT_EQ(target->form, one.form) << one.text;
    EXPECT_EQ(target->address, one.address.empty() ? one.text : one.address);
    EXPECT_EQ(NameOf(*target), one.name);
  }
  for (const char* text : {"", "slack+", "ntfy+topic", "ftp://host/x", "mailto://me"}) {
    EXPECT_FALSE(ParseNotifyTarget(text).ok()) << text;
  }
}

TEST(NotifyTargetTest, EachGetsItsForm) {
  const Notification failed{.event = "failed",
                            .run_id = "job7",
                            .host = "a",
                            .text = "rank 3 \"died\"\nsecond line",
                            .rank = 3,
                            .exit_code = 137};
  const auto body = [&](Form form) { return BodyOf({form, "https://x/y"}, failed, {}); };
  EXPECT_EQ(Json::parse(body(Form::kSlack))["text"],
            "run job7 on a failed\nrank 3 \"died\"\nsecond line");
  EXPECT_THAT(Json::parse(body(Form::kDiscord))["content"].get<std::string>(), HasSubstr("job7"));
  EXPECT_EQ(body(Form::kNtfy), "run job7 on a failed\nrank 3 \"died\"\nsecond line");
  const Json json = Json::parse(body(Form::kProgram));
  EXPECT_EQ(json, Json::parse(body(Form::kJson)));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["event"], "failed");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_EQ(json["time"], "1970-01-01T00:00:00Z");
  Notification longer = failed;
  longer.text = std::string(5000, 'x');
  EXPECT_LT(BodyOf({Form::kDiscord, ""}, longer, {}).size(), 2000u);
}

RunEvent Event(const std::string& name, const std::string& text) {
  RunEvent event;
  event.event = name;
  event.run_id = "job";
  event.text = text;
  return event;
}

TEST(NotifyScheduleTest, TheFirstMessageGoesOutAtOnceAndLaterOnesTogether) {
  NotifySchedule schedule("a", seconds(0));
  EXPECT_EQ(schedule.NextDeadline(), std::nullopt);
  schedule.OnEvent(Event("node.joined", "node a joined"), kBegin);
  EXPECT_EQ(schedule.Take("", kBegin), std::nullopt);
  schedule.OnEvent(Event("round.started", "round 1 begins"), kBegin);
  const auto started = schedule.Take("", kBegin);
  ASSERT_TRUE(started.has_value());
  EXPECT_EQ(started->event, "started");
  EXPECT_EQ(started->run_id, "job");
  RunEvent broken = Event("round.broken", "round 1 ends");
  broken.fields.emplace_back("cause_rank", std::int64_t{3});
  schedule.OnEvent(broken, kBegin + seconds(1));
  schedule.OnEvent(Event("round.started", "round 2 begins"), kBegin + seconds(2));
  EXPECT_EQ(schedule.NextDeadline(), kBegin + kNotifyInterval);
  EXPECT_EQ(schedule.Take("", kBegin + seconds(29)), std::nullopt);
  const auto both = schedule.Take("", kBegin + seconds(30));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->event, "restarted");
  EXPECT_EQ(both->text, "round 1 ends\nround 2 begins");
  EXPECT_EQ(both->rank, 3);
  EXPECT_EQ(schedule.NextDeadline(), std::nullopt);
}

TEST(NotifyScheduleTest, ADeathLongAfterTheLastMessageIsReportedAtOnce) {
  NotifySchedule schedule("a", seconds(0));
  schedule.OnEvent(Event("round.started", "begins"), kBegin);
  schedule.Take("", kBegin);
  schedule.OnEvent(Event("round.broken", "ends"), kBegin + seconds(31));
  EXPECT_LE(*schedule.NextDeadline(), kBegin + seconds(31));
  EXPECT_EQ(schedule.Take("", kBegin + seconds(31))->event, "broken");
}

TEST(NotifyScheduleTest, TheEndDoesNotWaitAndIsTheLast) {
  NotifySchedule schedule("a", seconds(60));
  schedule.OnEvent(Event("round.started", "begins"), kBegin);
  schedule.Take("", kBegin);
  schedule.OnEnd(3, "ddprun: run failed");
  const auto failed = schedule.Take("", kBegin + seconds(1));
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->event, "failed");
  EXPECT_EQ(failed->exit_code, 3);
  EXPECT_EQ(schedule.NextDeadline(), std::nullopt);
  EXPECT_EQ(schedule.Take("", kBegin + seconds(1000)), std::nullopt);
}

TEST(NotifyScheduleTest, WhatWasNotTakenIsSentWithTheNextMessageAndTheEndOnceMore) {
  NotifySchedule schedule("a", seconds(0));
  schedule.OnEvent(Event("round.started", "begins"), kBegin);
  schedule.Take("", kBegin);
  schedule.OnResult(false, kBegin + seconds(10));
  EXPECT_EQ(schedule.NextDeadline(), kBegin + kNotifyInterval);
  schedule.OnEvent(Event("round.broken", "ends"), kBegin + seconds(20));
  const auto both = schedule.Take("", kBegin + kNotifyInterval);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->text, "begins\nends");
  EXPECT_EQ(both->event, "broken");
  schedule.OnResult(true, kBegin + seconds(31));
  EXPECT_EQ(schedule.NextDeadline(), std::nullopt);
  schedule.OnEnd(3, "failed");
  ASSERT_TRUE(schedule.Take("", kBegin + seconds(32)).has_value());
  schedule.OnResult(false, kBegin + seconds(32));
  EXPECT_EQ(schedule.NextDeadline(), kBegin + seconds(32) + kNotifyRetryInterval);
  EXPECT_EQ(schedule.Take("", kBegin + seconds(32)), std::nullopt);
  const auto again = schedule.Take("", kBegin + seconds(33));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->text, "failed");
  EXPECT_EQ(again->exit_code, 3);
}

TEST(NotifyScheduleTest, SilenceIsAnAlarmWhereARunSaysThatItGoesOn) {
  NotifySchedule schedule("a", seconds(60));
  schedule.OnEvent(Event("round.started", "begins"), kBegin);
  schedule.Take("", kBegin);
  EXPECT_EQ(schedule.NextDeadline(), kBegin + seconds(60));
  schedule.OnEvent(Event("rank.slow", "rank 1 is slow"), kBegin + seconds(40));
  EXPECT_EQ(schedule.Take("step 7", kBegin + seconds(40))->event, "warning");
  EXPECT_EQ(schedule.Take("step 8", kBegin + seconds(99)), std::nullopt);
  const auto alive = schedule.Take("step 9", kBegin + seconds(100));
  ASSERT_TRUE(alive.has_value());
  EXPECT_EQ(alive->event, "alive");
  EXPECT_EQ(alive->text, "step 9");
  EXPECT_EQ(schedule.NextDeadline(), kBegin + seconds(160));
}

TEST(NotifyScheduleTest, ManyEventsAreBoundedAndCounted) {
  NotifySchedule schedule("a", seconds(0));
  for (int i = 0; i < 1000; ++i) schedule.OnEvent(Event("ranks.wait", "still"), kBegin);
  const auto all = schedule.Take("", kBegin);
  ASSERT_TRUE(all.has_value());
  EXPECT_THAT(all->text, HasSubstr("(980 earlier ones left out)\nstill"));
  EXPECT_THAT(all->text, Not(HasSubstr("1000")));
}

}  // namespace
}  // namespace ddprun
