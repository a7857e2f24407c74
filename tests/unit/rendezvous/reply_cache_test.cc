// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/reply_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace ddprun {
namespace {

// A few of these fill the cache.
StoreResult LargeReply() {
  StoreResult result;
  result.values.emplace_back(std::string(kRememberedBytesMax / 4, 'v'));
  return result;
}

TEST(ReplyCacheTest, ItIsFullOfBytesOrOfReplies) {
  ReplyCache large;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    EXPECT_FALSE(large.IsFull()) << id;
    large.Remember(id, LargeReply());
  }
  EXPECT_TRUE(large.IsFull());
  ReplyCache many;
  for (std::uint64_t id = 1; id <= kRememberedAnswersMax; ++id) {
    EXPECT_FALSE(many.IsFull()) << id;
    many.Remember(id, {});
  }
  EXPECT_TRUE(many.IsFull());
}

// For a node that confirms its replies, however long the run and however they are forgotten.
TEST(ReplyCacheTest, ForgottenRepliesFreeTheirBytes) {
  struct Way {
    const char* name;
    std::function<void(ReplyCache&, std::uint64_t id)> forget;
  };
  const Way ways[] = {
      {"Forget", [](ReplyCache& cache, std::uint64_t id) { cache.Forget(id); }},
      {"KeepOnly", [](ReplyCache& cache, std::uint64_t) { cache.KeepOnly({}); }},
      {"Clear", [](ReplyCache& cache, std::uint64_t) { cache.Clear(); }},
      {"ForgetLowest", [](ReplyCache& cache, std::uint64_t) { cache.ForgetLowest(); }},
      {"Remember", [](ReplyCache& cache, std::uint64_t id) { cache.Remember(id, {}); }},
  };
  for (const Way& way : ways) {
    ReplyCache cache;
    for (std::uint64_t id = 1; id <= 5; ++id) {
      cache.Remember(id, LargeReply());
      EXPECT_FALSE(cache.IsFull()) << way.name << " " << id;
      way.forget(cache, id);
    }
  }
}

TEST(ReplyCacheTest, WhatIsUnansweredIsKept) {
  ReplyCache cache;
  for (std::uint64_t id = 1; id <= 3; ++id)
    cache.Remember(id, {.number = static_cast<std::int64_t>(id)});
  cache.KeepOnly({2, 7});
  EXPECT_EQ(cache.size(), 1u);
  ASSERT_NE(cache.Find(2), nullptr);
  EXPECT_EQ(cache.Find(2)->number, 2);
  EXPECT_EQ(cache.Find(1), nullptr);
}

}  // namespace
}  // namespace ddprun
