// SPDX-License-Identifier: Apache-2.0
// What is written and read by hand is what protobuf writes and reads.
#include "rendezvous/wire/store_codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {
namespace {

std::string_view MessageOf(const std::string& frame) {
  return std::string_view(frame).substr(kFrameLengthBytes);
}

class Things {
 public:
  explicit Things(unsigned seed) : random_(seed) {}

  std::uint64_t Below(std::uint64_t limit) { return random_() % limit; }
  std::int64_t Number() {
    constexpr std::int64_t kSome[] = {0,
                                      1,
                                      -1,
                                      127,
                                      128,
                                      300,
                                      std::numeric_limits<int>::max(),
                                      std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
    return kSome[Below(std::size(kSome))];
  }
  std::vector<std::string> Strings() {
    std::vector<std::string> strings(Below(4));
    for (std::string& one : strings) {
      one.resize(Below(2) == 0 ? Below(3) : Below(400));
      for (char& byte : one) byte = static_cast<char>(Below(256));
    }
    return strings;
  }
  StoreOp Op() {
    StoreOp op;
    op.verb = static_cast<StoreVerb>(1 + Below(15));
    op.round = RoundId{Below(3) * 200};
    op.keys = Strings();
    op.values = Strings();
    op.number = Number();
    constexpr int kTimes[] = {0, 1, 999, 1000, 1001, 1'800'000};
    op.timeout = std::chrono::milliseconds(kTimes[Below(std::size(kTimes))]);
    return op;
  }
  StoreResult Result() {
    StoreResult result;
    if (Below(3) == 0) result.status = absl::AbortedError(Below(2) == 0 ? "" : "over \xff");
    result.values = Strings();
    result.keys = Strings();
    result.number = Number();
    return result;
  }

 private:
  std::mt19937_64 random_;
};

TEST(StoreCodecTest, RequestsAreThoseOfProtobuf) {
  Things things(1);
  for (int i = 0; i < 2000; ++i) {
    const StoreOp op = things.Op();
    const std::uint64_t id = 1 + things.Below(1'000'000);
    const std::string frame = ToRequestFrame(id, op.round, op);
    v1::StoreRequests message;
    AddTo(&message, {{{id, op}}, {}, 0});
    ASSERT_EQ(frame, ToFrame(message)) << message.ShortDebugString();
    std::vector<StoreRequest> read;
    ASSERT_TRUE(ReadRequests(MessageOf(frame), &read));
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0], (StoreRequest{id, op}));
  }
}

TEST(StoreCodecTest, RepliesAreThoseOfProtobuf) {
  Things things(2);
  for (int i = 0; i < 2000; ++i) {
    const StoreResult result = things.Result();
    const std::vector<std::uint64_t> ids{things.Below(2), 1 + things.Below(1'000'000)};
    const std::vector<std::string> frames = ToReplyFrames(result, ids);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      v1::StoreReplies message;
      *message.add_replies() = ToProto(StoreReply{ids[k], result, false, 0});
      ASSERT_EQ(frames[k], ToFrame(message)) << message.ShortDebugString();
      std::vector<StoreReply> read;
      ASSERT_EQ(ReadReplies(MessageOf(frames[k]), &read), result.status.ok());
      if (!result.status.ok()) continue;
      ASSERT_EQ(read.size(), 1u);
      EXPECT_EQ(read[0], (StoreReply{ids[k], result, false, 0}));
    }
  }
}

TEST(StoreCodecTest, WhatElseThereIsIsLeftToProtobuf) {
  std::vector<StoreRequest> requests;
  v1::StoreRequests message;
  *message.mutable_hello() = ToProto(StoreHello{});
  EXPECT_FALSE(ReadRequests(message.SerializeAsString(), &requests));
  message.Clear();
  AddTo(&message, {{{1, std::nullopt}}, {}, 0});
  EXPECT_FALSE(ReadRequests(message.SerializeAsString(), &requests));
  message.Clear();
  message.add_requests()->mutable_op()->set_verb(v1::StoreOp::VERB_UNSPECIFIED);
  EXPECT_FALSE(ReadRequests(message.SerializeAsString(), &requests));
  message.mutable_requests(0)->mutable_op()->set_verb(static_cast<v1::StoreOp::Verb>(99));
  EXPECT_FALSE(ReadRequests(message.SerializeAsString(), &requests));
  EXPECT_TRUE(ReadRequests("", &requests)) << "nothing is no requests";
}

// Half a message, or one with a byte changed, is read as protobuf reads it or not at all.
TEST(StoreCodecTest, BrokenMessagesAreNotReadAsSomethingElse) {
  Things things(3);
  std::size_t read_by_both = 0;
  for (int i = 0; i < 20'000; ++i) {
    const StoreOp op = things.Op();
    std::string text(MessageOf(ToRequestFrame(1 + things.Below(300), op.round, op)));
    if (things.Below(2) == 0) text.resize(things.Below(text.size()));
    if (!text.empty()) text[things.Below(text.size())] = static_cast<char>(things.Below(256));
    std::vector<StoreRequest> read;
    if (!ReadRequests(text, &read)) continue;
    v1::StoreRequests message;
    ASSERT_TRUE(message.ParseFromString(text));
    std::vector<StoreReply> refused;
    const StoreBatch batch = FromProto(std::move(message), &refused);
    ASSERT_TRUE(refused.empty());
    ASSERT_EQ(batch.requests, read);
    ++read_by_both;
  }
  EXPECT_GT(read_by_both, 1000u);
}

}  // namespace
}  // namespace ddprun
