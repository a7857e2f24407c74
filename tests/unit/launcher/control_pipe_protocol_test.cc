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

SetupReader Read(const std::string& lines) {
  SetupReader reader;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty()))
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

TEST(ControlPipeProtocolTest, StdinArrivesByteForByte) {
  for (const PassStdin& sent : {PassStdin{2, EveryByte(), false}, PassStdin{0, "", true}}) {
    const std::string line = Encode(sent);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_EQ(ParseStdin(line), sent);
    EXPECT_EQ(ParseSignal(line), std::nullopt);
  }
  EXPECT_EQ(ParseStdin(Encode(PassSignal{15})), std::nullopt);
  EXPECT_EQ(ParseStdin(R"({"type":"stdin","bytes":3})"), std::nullopt);
}

TEST(ControlPipeProtocolTest, WhatIsNoMessageIsRefusedWithoutShowingIt) {
  SetupReader reader;
  const absl::Status status = reader.TakeLine(R"({"tokn":"5ecre7"})");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("5ecre7"), std::string::npos);
  EXPECT_FALSE(reader.TakeLine("token 5ecre7").ok());
  EXPECT_FALSE(reader.TakeLine(R"({"type":"go","node":"x"})").ok());
  EXPECT_FALSE(reader.TakeLine(R"({"type":"setup","names":[1]})").ok());
}

TEST(ControlPipeProtocolTest, MembersOfALaterVersionAreIgnored) {
  SetupReader reader = Read(R"({"type":"setup","node":1,"color":"red"})"
                            "\n"
                            R"({"type":"go","node":1,"later":{}})");
  EXPECT_EQ(reader.setup().node, 1);
  EXPECT_EQ(reader.go()->node, 1);
}

TEST(ControlPipeProtocolTest, DeepNestingIsNoMessageAndNoCrash) {
  const std::string deep(500'000, '[');
  SetupReader reader;
  EXPECT_FALSE(reader.TakeLine(deep).ok());
  const std::string closed = deep + std::string(deep.size(), ']');
  EXPECT_TRUE(reader.TakeLine("{\"type\":\"setup\",\"later\":" + closed + "}").ok());
}

TEST(ControlPipeProtocolTest, ASignalIsPassedOn) {
  std::string line = Encode(PassSignal{15});
  EXPECT_EQ(line, "{\"signal\":15,\"type\":\"signal\"}\n");
  line.pop_back();
  EXPECT_EQ(ParseSignal(line), PassSignal{15});
  EXPECT_EQ(ParseSignal(R"({"type":"signal"})"), std::nullopt);
  EXPECT_EQ(ParseSignal(R"({"type":"go","node":-1})"), std::nullopt);
}

TEST(ControlPipeProtocolTest, MessagesOfANodeAreNoWorkersLines) {
  const NodeMessage messages[] = {
      Hello{1, 2, "0.1.0", "10.0.0.1", ""},
      Serving{29500},
      Joined{},
      NodeVerdict{"ddprun: run failed: x\n  last lines:\n    - y \x1e\n"},
      Finished{"a run", 3, 2, 16},
      StdinWanted{}};
  for (const NodeMessage& message : messages) {
    const std::string line = ToLine(message);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto parsed = ParseLine(line);
    ASSERT_TRUE(std::holds_alternative<NodeMessage>(parsed)) << line;
    EXPECT_EQ(std::get<NodeMessage>(parsed), message);
  }
}

TEST(ControlPipeProtocolTest, AWorkersLineStaysAsItIsEvenIfItLooksLikeAMessage) {
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
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ParseLine("\x1em{\"type\":\"future\"}")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ParseLine("\x1em{\"type\":\"serving\"}")));
}

TEST(ControlPipeProtocolTest, ANodeOfVersion2IsKnownByItsHello) {
  const auto parsed = ParseLine("\x1ewhello 2 7 0.1.0 - -");
  ASSERT_TRUE(std::holds_alternative<NodeMessage>(parsed));
  const auto& hello = std::get<Hello>(std::get<NodeMessage>(parsed));
  EXPECT_EQ(hello.control_pipe, 2);
  EXPECT_EQ(hello.protocol, 7u);
  EXPECT_EQ(hello.version, "0.1.0");
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
