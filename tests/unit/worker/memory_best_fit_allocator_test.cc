// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/best_fit_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ddprun {
namespace {

constexpr std::size_t kAlignment = 64;

TEST(BestFitAllocator, NothingIsTakenWithoutARange) {
  BestFitAllocator map(kAlignment);
  EXPECT_FALSE(map.Take(1).has_value());
}

TEST(BestFitAllocator, TheSmallestPartThatFitsIsTaken) {
  BestFitAllocator map(kAlignment);
  map.AddRange({.begin = 0x10000, .size = 1024});
  map.AddRange({.begin = 0x20000, .size = 256});
  EXPECT_EQ(map.Take(200), 0x20000u);
  EXPECT_EQ(map.Take(200), 0x10000u);
  EXPECT_EQ(map.taken_bytes(), 512u) << "sizes are rounded up to the alignment";
}

TEST(BestFitAllocator, NeighboursAreJoinedAgainInAnyOrder) {
  for (const bool forwards : {true, false}) {
    BestFitAllocator map(kAlignment);
    map.AddRange({.begin = 0x10000, .size = 192});
    const auto a = *map.Take(64), b = *map.Take(64), c = *map.Take(64);
    EXPECT_FALSE(map.Take(1).has_value());
    map.GiveBack(forwards ? a : c);
    map.GiveBack(forwards ? c : a);
    EXPECT_FALSE(map.Take(128).has_value());
    map.GiveBack(b);
    EXPECT_EQ(map.Take(192), 0x10000u);
  }
}

TEST(BestFitAllocator, RangesThatTouchStayApart) {
  BestFitAllocator map(kAlignment);
  map.AddRange({.begin = 0x10000, .size = 128});
  map.AddRange({.begin = 0x10080, .size = 128});
  const auto a = *map.Take(128), b = *map.Take(128);
  map.GiveBack(a);
  map.GiveBack(b);
  EXPECT_FALSE(map.Take(256).has_value());
  EXPECT_EQ(map.RemoveFreeRanges().size(), 2u);
  EXPECT_EQ(map.range_bytes(), 0u);
}

TEST(BestFitAllocator, ARangeInUseIsNotRemoved) {
  BestFitAllocator map(kAlignment);
  map.AddRange({.begin = 0x10000, .size = 128});
  map.AddRange({.begin = 0x20000, .size = 4096});
  const auto block = *map.Take(64);
  const auto removed = map.RemoveFreeRanges();
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].begin, 0x20000u);
  EXPECT_TRUE(map.IsTaken(block));
}

TEST(BestFitAllocator, BlocksNeverOverlapWhateverTheOrder) {
  std::mt19937 random(7);
  BestFitAllocator map(kAlignment);
  map.AddRange({.begin = 0x100000, .size = 1 << 16});
  map.AddRange({.begin = 0x110000, .size = 1 << 15});  // touches the first
  std::map<std::uintptr_t, std::size_t> live;
  std::size_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const std::size_t size = 1 + random() % 9000;
      const auto begin = map.Take(size);
      if (!begin) continue;
      ASSERT_EQ(*begin % kAlignment, 0u);
      const auto after = live.lower_bound(*begin);
      if (after != live.end()) {
        ASSERT_LE(*begin + size, after->first);
      }
      if (after != live.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second, *begin);
      }
      ASSERT_TRUE(*begin + size <= 0x110000 || *begin >= 0x110000) << "over a range's end";
      live.emplace(*begin, size);
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    } else {
      auto victim = live.lower_bound(0x100000 + random() % 0x18000);
      if (victim == live.end()) victim = live.begin();
      bytes -= (victim->second + kAlignment - 1) / kAlignment * kAlignment;
      map.GiveBack(victim->first);
      live.erase(victim);
    }
    ASSERT_EQ(map.taken_bytes(), bytes);
  }
  for (const auto& [begin, size] : live) map.GiveBack(begin);
  EXPECT_EQ(map.Take(1 << 16), 0x100000u) << "all parts are joined again";
}

}  // namespace
}  // namespace ddprun
