// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/verdict.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

nlohmann::json Parsed(const RunEnd& end) { return nlohmann::json::parse(VerdictJson(end)); }

TEST(VerdictJsonTest, WhatIsKnownIsThereAndWhatIsNotIsNull) {
  Failure cause;
  cause.kind = FailureKind::kWorkerSignaled;
  cause.rank = 3;
  cause.local_rank = 1;
  cause.node_rank = 1;
  cause.host = "b";
  cause.pid = 4711;
  cause.signal = SIGKILL;
  cause.age = std::chrono::milliseconds(12'345);
  cause.oom = OomKill{1 << 20, 2 << 20, true};
  cause.core_file = "/tmp/core.7";
  cause.last_lines = {"bad \xFF byte"};
  Verdict verdict{.cause = cause, .exit_code = 137, .round = RoundId{2}, .restart_count = 1};
  verdict.outcomes = {{EndKind::kExited, 1, 3, {{0, 1}, {4, 4}}, {}}};
  const auto json =
      Parsed({.run_id = "job", .host = "a", .exit_code = 137, .text = "t\n", .verdict = verdict});
  EXPECT_EQ(json["success"], false);
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_EQ(json["round"], 2);
  EXPECT_EQ(json["text"], "t");
  EXPECT_EQ(json["cause"]["kind"], "worker_signaled");
  EXPECT_EQ(json["cause"]["rank"], 3);
  EXPECT_EQ(json["cause"]["signal"], "SIGKILL");
  EXPECT_EQ(json["cause"]["age_seconds"], 12.345);
  EXPECT_EQ(json["cause"]["oom"]["limit_of"], "cgroup");
  EXPECT_EQ(json["cause"]["core"], "/tmp/core.7");
  EXPECT_TRUE(json["cause"]["message"].is_null());
  EXPECT_EQ(json["others"][0]["how"], "exited");
  EXPECT_EQ(json["others"][0]["ranks"], (nlohmann::json{{0, 1}, {4, 4}}));
  EXPECT_EQ(json["others"][0]["sentence"], "ranks 0-1, 4 exited with code 1");
}

TEST(VerdictJsonTest, WhereTheRanksWait) {
  Failure cause;
  cause.places = {{{{0, 1}}, {Collective{"0", 57, "all_reduce", 64, "float32"}, {{"0", 56, "a"}}}},
                  {{{2, 2}}, {}}};
  const auto json = Parsed({.verdict = Verdict{.cause = cause}})["cause"]["collectives"];
  EXPECT_EQ(
      json["sentence"],
      "ranks 0-1 wait in all_reduce 57 (64 bytes float32); rank 2 has reported no collective");
  EXPECT_EQ(json["places"][0]["ranks"], (nlohmann::json{{0, 1}}));
  EXPECT_EQ(json["places"][0]["waits"], (nlohmann::json{{"group", "0"},
                                                        {"number", 57},
                                                        {"name", "all_reduce"},
                                                        {"bytes", 64},
                                                        {"dtype", "float32"}}));
  EXPECT_EQ(json["places"][0]["last"][0]["number"], 56);
  EXPECT_TRUE(json["places"][0]["last"][0]["bytes"].is_null());
  EXPECT_TRUE(json["places"][1]["waits"].is_null());
  EXPECT_TRUE(Parsed({.verdict = Verdict{.cause = Failure{}}})["cause"]["collectives"].is_null());
}

TEST(VerdictJsonTest, AnEndWithoutAVerdictHasItsText) {
  const auto json = Parsed({.host = "a", .exit_code = 1, .text = "ddprun: no service\n"});
  EXPECT_EQ(json["success"], false);
  EXPECT_TRUE(json["cause"].is_null());
  EXPECT_TRUE(json["others"].empty());
  EXPECT_TRUE(json["run_id"].is_null());
  EXPECT_EQ(json["text"], "ddprun: no service");
}

TEST(VerdictJsonTest, Success) {
  const auto json = Parsed({.host = "a", .verdict = Verdict{.success = true, .world_size = 8}});
  EXPECT_EQ(json["success"], true);
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["world_size"], 8);
}

}  // namespace
}  // namespace ddprun
