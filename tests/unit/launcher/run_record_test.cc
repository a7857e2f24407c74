// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/runs/output_frames.h"

namespace ddprun {
namespace {

RunRecord Example() {
  RunRecord record;
  record.name = "20260131-174500-3f9a1c";
  record.run_id = "job7";
  record.command = {"--detach", "--nnodes", "2", "train.py", "a b"};
  record.working_folder = "/work";
  record.host = "node-a";
  record.pid = 4711;
  record.started_ms = 1'800'000'000'250;
  record.begun = true;
  record.service = "node-a:29400";
  record.security.token_file = "/state/token";
  return record;
}

TEST(RunRecordTest, IsReadAsItWasWritten) {
  RunRecord record = Example();
  record.ending = RunEnding{1'800'000'090, 137, "ddprun: rank 1 was killed\nmore"};
  const auto again = ParseRunRecord(ToJson(record));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name, record.name);
  EXPECT_EQ(again->run_id, record.run_id);
  EXPECT_EQ(again->command, record.command);
  EXPECT_EQ(again->pid, record.pid);
  EXPECT_EQ(again->begun, true);
  EXPECT_EQ(again->service, record.service);
  EXPECT_EQ(again->security.token_file, record.security.token_file);
  EXPECT_EQ(again->ending, record.ending);
  EXPECT_FALSE(ParseRunRecord(ToJson(Example()))->ending.has_value());
}

TEST(RunRecordTest, WordsThatAreNotUtf8StayDifferent) {
  RunRecord record = Example();
  record.command = {"caf\xe9.py", "caf\xe8.py", "café.py"};
  const auto again = ParseRunRecord(ToJson(record));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->command, (std::vector<std::string>{"caf\\xe9.py", "caf\\xe8.py", "café.py"}));
}

TEST(RunRecordTest, RejectsWhatIsNone) {
  for (const char* text : {"", "{", "[]", "7", R"({"pid": "x"})", R"({"command": 7})"})
    EXPECT_EQ(ParseRunRecord(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  // Of a later version.
  const auto later = ParseRunRecord(R"({"name": "a", "colour": "red"})");
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->name, "a");
}

TEST(RunRecordTest, SaysHowARunEnded) {
  KnownRun run{Example(), true};
  EXPECT_EQ(StateText(run), "runs");
  run.record.begun = false;
  EXPECT_EQ(StateText(run), "begins");
  run.live = false;
  EXPECT_EQ(StateText(run), "killed with its recorder, or its machine ended");
  run.record.ending = RunEnding{1'800'000'090, 1, "ddprun: rank 3 exited with code 1\n  more"};
  EXPECT_EQ(StateText(run), "exit code 1: rank 3 exited with code 1");
  run.record.ending = RunEnding{1'800'000'090, 0, ""};
  EXPECT_EQ(StateText(run), "exit code 0");
}

TEST(RunRecordTest, TheTableHasALineForEachRun) {
  KnownRun live{Example(), true};
  KnownRun past{Example(), false};
  past.record.run_id.clear();
  past.record.ending = RunEnding{1'800'000'000 + 3 * 3600 + 120, 0, ""};
  const std::string text = RunsText({live, past}, 1'800'000'075);
  EXPECT_NE(text.find("20260131-174500-3f9a1c (job7)  "), std::string::npos) << text;
  EXPECT_NE(text.find("  1:15 min  --detach --nnodes 2 train.py 'a b'  runs\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  3:02 h    --detach --nnodes 2 train.py 'a b'  exit code 0\n"),
            std::string::npos)
      << text;
  EXPECT_NE(RunsText({}, 0).find("no run was started with ddprun --detach"), std::string::npos);
}

TEST(RunRecordTest, ProgramsGetTheSameAsJson) {
  KnownRun lost{Example(), false};
  KnownRun past{Example(), false};
  past.record.ending = RunEnding{1'800'000'090, 143, "ddprun: stopped"};
  const auto json = nlohmann::json::parse(RunsJson({lost, past}));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["runs"][0]["state"], "lost");
  EXPECT_TRUE(json["runs"][0]["exit_code"].is_null());
  EXPECT_EQ(json["runs"][1]["state"], "ended");
  EXPECT_EQ(json["runs"][1]["exit_code"], 143);
  EXPECT_EQ(json["runs"][1]["ended"], 1'800'000'090);
  EXPECT_EQ(json["runs"][1]["verdict"], "ddprun: stopped");
  EXPECT_FALSE(json["runs"][1].contains("security"));
}

TEST(OutputFramesTest, AreReadFromPiecesOfAnySize) {
  const std::vector<OutputFrame> frames = {{FrameKind::kOut, "hello\n"},
                                           {FrameKind::kErr, ""},
                                           {FrameKind::kOut, std::string(70'000, 'x')},
                                           {FrameKind::kGap, "12"}};
  std::string all;
  for (const OutputFrame& frame : frames) all += EncodeFrame(frame.kind, frame.bytes);
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{3}, std::size_t{65'536}, all.size()}) {
    FrameParser parser;
    std::vector<OutputFrame> read;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      parser.Add(absl::string_view(all).substr(at, piece));
      for (auto next = parser.Next(); next.ok() && next->has_value(); next = parser.Next())
        read.push_back(**next);
    }
    EXPECT_EQ(read, frames) << piece;
    EXPECT_EQ(parser.left(), 0u);
  }
}

TEST(OutputFramesTest, OtherBytesAreNamed) {
  FrameParser parser;
  parser.Add("Zebra");
  const auto frame = parser.Next();
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(frame.status().message(), "a frame of kind 90, which this version does not know");
}

}  // namespace
}  // namespace ddprun
