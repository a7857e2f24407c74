// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/frame_guard.h"

#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::seconds;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindow = 8, kContinue = 9 };

std::string Frame(int type, int flags, const std::string& payload = "") {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return frame + std::string("\0\0\0\1", 4) + payload;
}

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() { EXPECT_TRUE(Feed(kPreface)); }
  bool Feed(const std::string& bytes) { return guard_.Feed(bytes, now_) == nullptr; }
  // How many of them are let through, of at most `times`.
  int Count(const std::string& frame, int times) {
    int count = 0;
    while (count < times && Feed(frame)) ++count;
    return count;
  }

  TimePoint now_{};
  FrameGuard guard_{now_};
};

TEST_F(FrameGuardTest, WhatClientsSendPasses) {
  EXPECT_TRUE(Feed(Frame(kSettings, 0, "settings")));
  EXPECT_TRUE(Feed(Frame(kHeaders, 4, std::string(500, 'h'))));
  EXPECT_EQ(Count(Frame(kData, 0, std::string(16384, 'd')), 10'000), 10'000);
  EXPECT_EQ(Count(Frame(kWindow, 0, "wwww"), 10'000), 10'000);
  EXPECT_EQ(Count(Frame(kPing, 1, "pingping"), 10'000), 10'000);
  EXPECT_EQ(Count(Frame(kSettings, 1), 10'000), 10'000);
  EXPECT_EQ(Count(Frame(kPing, 0, "pingping"), 10'000), 10'000) << "gRPC limits those itself";
}

TEST_F(FrameGuardTest, HeadersInManyFrames) {
  EXPECT_TRUE(Feed(Frame(kHeaders, 0, std::string(8000, 'h'))));
  EXPECT_TRUE(Feed(Frame(kContinue, 4, std::string(8000, 'h'))));
  EXPECT_TRUE(Feed(Frame(kHeaders, 0, std::string(8000, 'h')))) << "each call has its own";
  EXPECT_TRUE(Feed(Frame(kContinue, 0, std::string(8000, 'h'))));
  EXPECT_FALSE(Feed(Frame(kContinue, 0, std::string(1000, 'h'))));
  EXPECT_FALSE(Feed(Frame(kPing, 1, "pingping"))) << "it is over";
}

TEST_F(FrameGuardTest, HeadersInManyEmptyFrames) {
  EXPECT_TRUE(Feed(Frame(kHeaders, 0, "h")));
  EXPECT_EQ(Count(Frame(kContinue, 0), 100), static_cast<int>(kHeaderFramesMax) - 1);
}

TEST_F(FrameGuardTest, CallsAndResetsHaveARate) {
  const std::string reset = Frame(kReset, 0, "code");
  EXPECT_EQ(Count(reset, kResetsAtOnceMax), kResetsAtOnceMax);
  now_ += seconds(1);
  EXPECT_EQ(Count(reset, 100'000), kResetsPerSecondMax);
}

TEST_F(FrameGuardTest, CallsHaveARate) {
  EXPECT_EQ(Count(Frame(kHeaders, 4, "h"), 100'000), kCallsAtOnceMax);
}

TEST_F(FrameGuardTest, ALongSilenceSavesUpNoMoreThanABurst) {
  now_ += std::chrono::hours(24);
  EXPECT_EQ(Count(Frame(kReset, 0, "code"), 100'000), kResetsAtOnceMax);
  guard_ = FrameGuard(now_);
  EXPECT_TRUE(Feed(kPreface));
  now_ += std::chrono::hours(24);
  EXPECT_EQ(Count(Frame(kHeaders, 4, "h"), 100'000), kCallsAtOnceMax);
}

// Fractions of a call add up, and no time is counted twice.
TEST_F(FrameGuardTest, CallsAtTheAllowedRatePassForEver) {
  constexpr int kAtOnce = 10;
  constexpr auto kPause = std::chrono::nanoseconds(seconds(1)) * kAtOnce / kCallsPerSecondMax;
  const std::string call = Frame(kHeaders, 4, "h");
  const TimePoint end = now_ + std::chrono::minutes(10);
  for (; now_ < end; now_ += kPause) ASSERT_EQ(Count(call, kAtOnce), kAtOnce);
}

TEST_F(FrameGuardTest, CallsAboveTheAllowedRateEndWhenTheBurstIsUsedUp) {
  constexpr int kEachSecond = kCallsPerSecondMax * 11 / 10;
  const std::string call = Frame(kHeaders, 4, "h");
  int passed = 0;
  for (; Count(call, kEachSecond) == kEachSecond; ++passed) {
    ASSERT_LT(passed, 1000) << "it goes on for ever";
    now_ += seconds(1);
  }
  EXPECT_NEAR(passed, (kCallsAtOnceMax - kEachSecond) / (kEachSecond - kCallsPerSecondMax), 1);
}

// As bytes come: in pieces of any size.
TEST_F(FrameGuardTest, PiecesOfFrames) {
  const std::string all = kPreface + Frame(kHeaders, 0, std::string(5000, 'h')) +
                          Frame(kContinue, 0, std::string(5000, 'h')) +
                          Frame(kContinue, 0, std::string(7000, 'h'));
  const std::size_t judged = all.size() - 7000;  // with its last header
  for (std::size_t size = 1; size < 40; ++size) {
    guard_ = FrameGuard(now_);
    for (std::size_t at = 0; at < all.size(); at += size) {
      const std::size_t end = std::min(all.size(), at + size);
      EXPECT_EQ(Feed(all.substr(at, end - at)), end < judged) << size << " " << at;
    }
  }
}

}  // namespace
}  // namespace ddprun
