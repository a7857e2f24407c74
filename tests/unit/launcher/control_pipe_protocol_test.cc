// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/control_pipe_protocol.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// Every byte that an argument may have.
std::string EveryByte() {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

SetupReader Read(const std::string& words) {
  SetupReader reader;
  for (const absl::string_view line : absl::StrSplit(words, '\n', absl::SkipEmpty()))
    EXPECT_TRUE(reader.TakeLine(line).ok()) << line;
  return reader;
}

TEST(ControlPipeProtocolTest, ASetupArrivesByteForByte) {
  const ddprun::Setup sent{.node = 3,
                           .names = {"a", "b c"},
                           .folder = "/data/" + EveryByte(),
                           .environment = {"A=" + EveryByte(), "B="},
                           .arguments = {"--nnodes=2", "", "\n", EveryByte()}};
  const std::string digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  SetupReader reader = Read(Encode(*Token::Parse(digits, "it")) + Encode(sent));
  EXPECT_FALSE(reader.go().has_value());
  EXPECT_EQ(reader.setup().node, sent.node);
  EXPECT_EQ(reader.setup().names, sent.names);
  EXPECT_EQ(reader.setup().folder, sent.folder);
  EXPECT_EQ(reader.setup().token, digits);
  EXPECT_EQ(reader.setup().environment, sent.environment);
  EXPECT_EQ(reader.setup().arguments, sent.arguments);
}

TEST(ControlPipeProtocolTest, TheFlagsOfAGoAreItsOwn) {
  const Go first{.node = 0, .node_rank = 0, .serve = true, .flags = {"--a=1"}};
  const Go all{.node = -1, .node_rank = std::nullopt, .serve = false, .flags = {"--b=2"}};
  EXPECT_EQ(Read(Encode(first)).go(), first);
  EXPECT_EQ(Read(Encode(first) + Encode(all)).go(), all);
}

TEST(ControlPipeProtocolTest, AnUnknownWordIsRefusedWithoutShowingWhatFollows) {
  SetupReader reader;
  const absl::Status status = reader.TakeLine("tokn 5ecre7");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("5ecre7"), std::string::npos);
  EXPECT_FALSE(reader.TakeLine("go x 0 0").ok());
  EXPECT_FALSE(reader.TakeLine("node x").ok());
}

TEST(ControlPipeProtocolTest, ASignalIsPassedOn) {
  EXPECT_EQ(Encode(PassSignal{15}), "signal 15\n");
  EXPECT_EQ(ParseSignal("signal 15"), PassSignal{15});
  EXPECT_EQ(ParseSignal("signal"), std::nullopt);
  EXPECT_EQ(ParseSignal("go -1 -1 0"), std::nullopt);
}

TEST(ControlPipeProtocolTest, WordsOfANodeAreNoWorkersLines) {
  const NodeMessage words[] = {Hello{1, 2, "0.1.0", "10.0.0.1", ""}, Serving{29500}, Joined{},
                               NodeVerdict{"ddprun: run failed: x\n  last lines:\n    - y \x1e\n"},
                               Finished{"a run", 3, 2, 16}};
  for (const NodeMessage& word : words) {
    const std::string line = ToLine(word);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto parsed = ParseLine(line);
    ASSERT_TRUE(std::holds_alternative<NodeMessage>(parsed)) << line;
    EXPECT_EQ(std::get<NodeMessage>(parsed), word);
  }
}

TEST(ControlPipeProtocolTest, AWorkersLineStaysAsItIsEvenIfItLooksLikeAWord) {
  const std::string forged = ToLine(Serving{1});
  for (const std::string& text : {std::string("[0] loss 0.1"), std::string(), forged}) {
    for (const bool is_error : {false, true}) {
      const std::string marked = MarkLine(is_error, text);
      const auto parsed = ParseLine(marked);
      ASSERT_TRUE(std::holds_alternative<OutputLine>(parsed)) << text;
      EXPECT_EQ(std::get<OutputLine>(parsed).is_error, is_error);
      EXPECT_EQ(std::get<OutputLine>(parsed).text, text);
    }
  }
  EXPECT_EQ(MarkLine(false, "[0] plain"), "[0] plain");
}

TEST(ControlPipeProtocolTest, AMarkOfALaterVersionIsNothing) {
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ParseLine("\x1ezfuture")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ParseLine("\x1ewfuture 1")));
}

TEST(ControlPipeProtocolTest, TakesSrunsLabelOff) {
  absl::string_view line = "12: text: more";
  EXPECT_EQ(TakeLabel(line), 12);
  EXPECT_EQ(line, "text: more");
  line = " 3:";
  EXPECT_EQ(TakeLabel(line), 3);
  EXPECT_EQ(line, "");
  line = "srun: error: x";
  EXPECT_EQ(TakeLabel(line), std::nullopt);
  EXPECT_EQ(line, "srun: error: x");
}

}  // namespace
}  // namespace ddprun
