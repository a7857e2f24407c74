// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "launcher/base/limits.h"
#include "tests/unit/launcher/python_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PythonThreads ReadThreads(const PythonImage& image, std::uint64_t runtime) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return image.Read(address, to, size);
  };
  return ReadPythonThreads(read, runtime, image.layout());
}

std::vector<std::string> Texts(const PythonThread& thread) {
  std::vector<std::string> texts;
  for (const PythonFrame& frame : thread.frames) texts.push_back(ToText(frame));
  return texts;
}

class PythonFramesTest : public testing::TestWithParam<int> {
 protected:
  PythonImage image_{LayoutFor(GetParam())};
  std::uint64_t file_ = image_.Str(U"/src/a.py", 1, true);
  std::uint64_t name_ = image_.Str(U"forward", 1, true);
};

INSTANTIATE_TEST_SUITE_P(Versions, PythonFramesTest, testing::Range(9, kPythonMinorMax + 1),
                         [](const auto& version) {
                           return "Python3" + std::to_string(version.param);
                         });

TEST_P(PythonFramesTest, ThreadsHaveTheirFrames) {
  const std::uint64_t module = image_.Str(U"<module>", 1, true);
  const std::uint64_t outer = image_.Frame(image_.Code(file_, module, 1), 0, 3);
  const std::uint64_t inner = image_.Frame(image_.Code(file_, name_, 20), outer, 0);
  const std::uint64_t main = image_.Thread(77, inner);
  const std::uint64_t other = image_.Thread(78, image_.Frame(image_.Code(file_, name_, 5), 0, 2));
  const PythonThreads found = ReadThreads(image_, image_.Runtime({other, main}, main));
  ASSERT_THAT(found.threads, SizeIs(2));
  EXPECT_EQ(found.more, 0u);
  const PythonThread& first = found.threads[0];
  EXPECT_THAT(Texts(first), ElementsAre("forward at /src/a.py:21", "<module> at /src/a.py:3"));
  EXPECT_TRUE(first.is_whole);
  EXPECT_TRUE(first.holds_gil);
  EXPECT_EQ(first.tid, GetParam() < 11 ? 0 : 77);
  EXPECT_EQ(first.handle, 0x7f0000000000u + 77);
  EXPECT_THAT(Texts(found.threads[1]), ElementsAre("forward at /src/a.py:7"));
  EXPECT_FALSE(found.threads[1].holds_gil);
}

TEST_P(PythonFramesTest, NamesMayHaveAnyCharacters) {
  const std::uint64_t latin = image_.Str(U"schl\u00e4fer", 1, false);
  const std::uint64_t wide = image_.Str(U"/\u65e5\u672c.py", 2, false);
  const std::uint64_t all = image_.Str({0x1f40d, '\n', 0x1b, 0xd800}, 4, false);
  const std::uint64_t outer = image_.Frame(image_.Code(wide, all, 1), 0, 0);
  const std::uint64_t frame = image_.Frame(image_.Code(wide, latin, 1), outer, 0);
  const PythonThreads found = ReadThreads(image_, image_.Runtime({image_.Thread(1, frame)}, 0));
  ASSERT_THAT(found.threads, SizeIs(1));
  EXPECT_THAT(Texts(found.threads[0]),
              ElementsAre("schl\xc3\xa4"
                          "fer at /\xe6\x97\xa5\xe6\x9c\xac.py:2",
                          "\xf0\x9f\x90\x8d??? at /\xe6\x97\xa5\xe6\x9c\xac.py:2"));
}

TEST_P(PythonFramesTest, FramesOfTheInterpreterAreLeftOut) {
  if (GetParam() < 12) GTEST_SKIP() << "it has none";
  const std::uint64_t outer = image_.Frame(image_.Code(file_, name_, 1), 0, 0);
  const std::uint64_t entry = image_.Frame(0, outer, 0, 3);
  const std::uint64_t frame = image_.Frame(image_.Code(file_, name_, 9), entry, 0);
  const PythonThreads found = ReadThreads(image_, image_.Runtime({image_.Thread(1, frame)}, 0));
  ASSERT_THAT(found.threads, SizeIs(1));
  EXPECT_THAT(Texts(found.threads[0]),
              ElementsAre("forward at /src/a.py:10", "forward at /src/a.py:2"));
  EXPECT_TRUE(found.threads[0].is_whole);
}

TEST_P(PythonFramesTest, RingsEnd) {
  const std::uint64_t code = image_.Code(file_, name_, 1);
  const std::uint64_t frame = image_.Frame(code, 0, 0);
  image_.Put(frame + image_.layout().frame_previous, frame);
  const std::uint64_t a = image_.Thread(1, frame);
  const std::uint64_t b = image_.Thread(2, frame);
  const std::uint64_t runtime = image_.Runtime({a, b}, 0);
  image_.Put(b + image_.layout().thread_next, a);
  const PythonThreads found = ReadThreads(image_, runtime);
  ASSERT_THAT(found.threads, SizeIs(2));
  EXPECT_THAT(found.threads[0].frames, SizeIs(kStackFramesMax));
  EXPECT_FALSE(found.threads[0].is_whole);
}

TEST_P(PythonFramesTest, WhatCannotBeReadIsLeftOut) {
  const std::uint64_t lost = image_.Frame(0x1234, 0, 0);
  const std::uint64_t frame = image_.Frame(image_.Code(0, name_, 1), lost, 0);
  const PythonThreads found = ReadThreads(image_, image_.Runtime({image_.Thread(1, frame)}, 0));
  ASSERT_THAT(found.threads, SizeIs(1));
  EXPECT_THAT(Texts(found.threads[0]), ElementsAre("forward"));
  EXPECT_FALSE(found.threads[0].is_whole);
  EXPECT_THAT(ReadThreads(image_, 0x10).threads, IsEmpty());
}

TEST_P(PythonFramesTest, OnlySoManyThreadsAreShownAndTheOldestAreAmongThem) {
  std::vector<std::uint64_t> threads;
  for (std::size_t i = 0; i < kStackThreadsMax + 3; ++i) threads.push_back(image_.Thread(i, 0));
  const PythonThreads found = ReadThreads(image_, image_.Runtime(threads, 0));
  EXPECT_THAT(found.threads, SizeIs(kStackThreadsMax));
  EXPECT_EQ(found.more, 3u);
  EXPECT_EQ(found.threads[0].handle, 0x7f0000000000u + kStackThreadsMax + 2);
}

TEST_P(PythonFramesTest, LongNamesAreCut) {
  const std::uint64_t name = image_.Str(std::u32string(kPythonNameCharsMax + 1, U'x'), 1, true);
  const std::uint64_t frame = image_.Frame(image_.Code(0, name, 1), 0, 0);
  const PythonThreads found = ReadThreads(image_, image_.Runtime({image_.Thread(1, frame)}, 0));
  EXPECT_EQ(found.threads[0].frames[0].function, std::string(kPythonNameCharsMax, 'x') + "...");
}

TEST_P(PythonFramesTest, AFrameThatChangesIsReadAgain) {
  const std::uint64_t frame = image_.Frame(image_.Code(file_, name_, 1), 0, 0);
  const std::uint64_t runtime = image_.Runtime({image_.Thread(1, frame)}, 0);
  int failures = 1;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    if (address == frame + image_.layout().frame_code && failures-- > 0) return false;
    return image_.Read(address, to, size);
  };
  const PythonThreads found = ReadPythonThreads(read, runtime, image_.layout());
  EXPECT_TRUE(found.threads[0].is_whole);
  EXPECT_THAT(Texts(found.threads[0]), ElementsAre("forward at /src/a.py:2"));
}

// Every pointer, size and number may be wrong: it ends, and stays within its limits.
TEST_P(PythonFramesTest, DamagedMemoryIsSurvived) {
  const std::uint64_t outer = image_.Frame(image_.Code(file_, name_, 1), 0, 0);
  const std::uint64_t frame = image_.Frame(image_.Code(file_, name_, 9), outer, 0);
  const std::uint64_t runtime = image_.Runtime({image_.Thread(2, frame), image_.Thread(1, 0)}, 0);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
      if (!image_.Read(address, to, size)) return false;
      if (random() % 8 == 0) {
        static_cast<char*>(to)[random() % size] = static_cast<char>(random());
      }
      return true;
    };
    const PythonThreads found = ReadPythonThreads(read, runtime, image_.layout());
    for (const PythonThread& thread : found.threads) {
      EXPECT_LE(thread.frames.size(), kStackFramesMax);
      for (const std::string& text : Texts(thread)) EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  }
}

TEST(PythonFrameTextTest, MissingPartsAreLeftOut) {
  EXPECT_EQ(ToText({.function = "f", .file = "a.py", .line = 3}), "f at a.py:3");
  EXPECT_EQ(ToText({.function = "f", .file = "a.py"}), "f at a.py");
  EXPECT_EQ(ToText({.function = "f", .line = 3}), "f");
  EXPECT_EQ(ToText({}), "?");
}

}  // namespace
}  // namespace ddprun
