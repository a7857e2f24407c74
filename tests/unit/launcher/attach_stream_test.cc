// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/attach_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ddprun {
namespace {

// A server's whole answer from a position on. `frames`: all that was recorded.
std::string Answer(const std::vector<OutputFrame>& frames, std::uint64_t from) {
  std::string bytes;
  std::uint64_t position = 0;
  for (const OutputFrame& frame : frames) {
    if (position >= from) bytes += EncodeFrame(frame.kind, frame.bytes);
    position += kFrameHeaderBytes + frame.bytes.size();
  }
  return bytes;
}

std::string Greeting(const OutputPlace& shown) {
  RunRecord record;
  record.name = "one";
  return EncodeFrame(FrameKind::kRecord, ToJson(record)) +
         EncodeFrame(FrameKind::kPlace, ToLine(shown));
}

// Takes all that has come.
std::string ShowAll(AttachStream& stream) {
  std::string shown;
  for (auto frame = stream.Next(); frame.ok() && frame->has_value(); frame = stream.Next()) {
    if (!IsOutput((*frame)->kind)) continue;
    shown += (*frame)->bytes;
    stream.Shown((*frame)->bytes.size());
  }
  return shown;
}

TEST(AttachStreamTest, BeginsWhereItsUserWasShown) {
  AttachStream stream(/*from_start=*/false);
  stream.Begin();
  EXPECT_FALSE(stream.record().has_value());
  stream.Add(Greeting({.position = 9, .within = 2}));
  EXPECT_EQ(ShowAll(stream), "");
  EXPECT_EQ(stream.record()->name, "one");
  EXPECT_EQ(stream.TakeLine(), "00000000000000000009 00000002\n");
  EXPECT_FALSE(stream.TakeLine().has_value());
  stream.Add(EncodeFrame(FrameKind::kOut, "seen, new"));
  const auto frame = stream.Next();
  EXPECT_EQ((*frame)->bytes, "en, new");
  stream.Shown(3);  // and then the user left
  EXPECT_EQ(stream.place(), (OutputPlace{.position = 9, .within = 5}));
}

TEST(AttachStreamTest, ShowsAllThatIsKeptOnRequest) {
  AttachStream stream(/*from_start=*/true);
  stream.Begin();
  stream.Add(Greeting({.position = 9, .within = 2}));
  ShowAll(stream);
  EXPECT_EQ(stream.TakeLine(), ToLine({}));
  stream.Add(EncodeFrame(FrameKind::kGap, "100"));
  EXPECT_EQ((**stream.Next()), (OutputFrame{FrameKind::kGap, "100"}));
  EXPECT_EQ(stream.place(), (OutputPlace{.position = 100, .within = 0}));
}

TEST(AttachStreamTest, TheSecondRecordIsTheEnd) {
  AttachStream stream(false);
  stream.Begin();
  stream.Add(Greeting({}));
  ShowAll(stream);
  EXPECT_FALSE(stream.ended());
  RunRecord record;
  record.ending = RunEnding{1, 3, "words"};
  stream.Add(EncodeFrame(FrameKind::kOut, "last") +
             EncodeFrame(FrameKind::kRecord, ToJson(record)));
  EXPECT_EQ(ShowAll(stream), "last");
  EXPECT_TRUE(stream.ended());
  EXPECT_EQ(stream.record()->ending->exit_code, 3);
}

TEST(AttachStreamTest, NoByteIsLostOrDoubledOverAThousandCuts) {
  std::mt19937 generator(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(generator() % n); };
  std::vector<OutputFrame> frames;
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    std::string text(below(40), static_cast<char>('a' + i % 26));
    all += text;
    frames.push_back({below(2) == 0 ? FrameKind::kOut : FrameKind::kErr, std::move(text)});
  }
  AttachStream stream(false);
  std::string shown;
  for (int cut = 0; cut < 1000; ++cut) {
    stream.Begin();
    stream.Add(Greeting({}));
    ShowAll(stream);
    const auto begin = ParseOutputPlace(*stream.TakeLine());
    ASSERT_EQ(begin, stream.place());
    // Cut at any byte, and the user may be shown a part of a frame only.
    const std::string answer = Answer(frames, begin->position);
    stream.Add(absl::string_view(answer).substr(0, below(200)));
    for (auto frame = stream.Next(); frame->has_value(); frame = stream.Next()) {
      const std::string& bytes = (*frame)->bytes;
      const std::size_t part = below(8) == 0 ? below(bytes.size() + 1) : bytes.size();
      shown += bytes.substr(0, part);
      stream.Shown(part);
      if (part < bytes.size()) break;
    }
  }
  stream.Begin();
  stream.Add(Greeting({}));
  ShowAll(stream);
  stream.Add(Answer(frames, ParseOutputPlace(*stream.TakeLine())->position));
  shown += ShowAll(stream);
  EXPECT_EQ(shown, all);
}

TEST(AttachStreamTest, AnotherProgramIsNamed) {
  AttachStream stream(false);
  stream.Begin();
  stream.Add("Welcome to node-a!\n");
  const auto frame = stream.Next();
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      frame.status().message(),
      "the other end is no ddpctl of this version: it sent a frame of kind 87, which this version "
      "does not know");
}

TEST(AttachStreamTest, ALineIsAPlaceOrNothing) {
  EXPECT_EQ(ParseOutputPlace("7 8"), (OutputPlace{7, 8}));
  for (const char* text : {"", "7", "7 8 9", "x 8", "-1 0", "7 99999999"})
    EXPECT_FALSE(ParseOutputPlace(text).has_value()) << text;
}

}  // namespace
}  // namespace ddprun
