// SPDX-License-Identifier: Apache-2.0
#include "proto/limits/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/ddprun.pb.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

template <typename Message>
absl::Status Check(const std::string& bytes) {
  return CheckParsedSize(*Message::descriptor(), bytes);
}

std::string Many(const std::string& piece, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += piece;
  return all;
}

// The largest that ddprun's own nodes and service send.
TEST(MessageLimitsTest, GoodMessagesFit) {
  v1::StoreRequests requests;
  for (std::size_t i = 0; i < kStoreBatchOps; ++i) {
    v1::StoreOp& op = *requests.add_requests()->mutable_op();
    op.add_keys(std::string(100, 'k'));
    op.add_values(std::string(100, 'v'));
    op.mutable_timeout()->set_seconds(1);
  }
  EXPECT_TRUE(Check<v1::StoreRequests>(requests.SerializeAsString()).ok());
  v1::StatusAnswer status;
  for (std::size_t i = 0; i < kStatusNodesMax; ++i) {
    v1::NodeStatus& node = *status.add_runs()->add_nodes();
    node.set_host("host");
    node.mutable_silent()->set_seconds(1);
    node.mutable_progress()->set_step(1);
    node.mutable_progress_age()->set_seconds(1);
  }
  EXPECT_TRUE(Check<v1::StatusAnswer>(status.SerializeAsString()).ok());
  v1::StoreReplies all_keys;
  v1::StoreReply& reply = *all_keys.add_replies();
  for (int i = 0; i < 300'000; ++i) reply.add_keys(std::string(40, 'k'));
  EXPECT_TRUE(Check<v1::StoreReplies>(all_keys.SerializeAsString()).ok());
}

TEST(MessageLimitsTest, ManySmallPartsDoNot) {
  const absl::Status status = Check<v1::StoreRequests>(Many(std::string("\x12\0", 2), 8'000'000));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a StoreRequests message has so many parts that it would take more than 64 "
                        "MB of memory"));
  // Parts of a part, numbers of a list, fields that nobody knows.
  v1::StoreRequests nested;
  nested.add_requests()->mutable_op();
  EXPECT_FALSE(Check<v1::StoreRequests>(Many(nested.SerializeAsString(), 100'000)).ok());
  v1::StoreRequests numbers;
  numbers.mutable_answered()->Resize(15'000'000, 1);
  EXPECT_FALSE(Check<v1::StoreRequests>(numbers.SerializeAsString()).ok());
  EXPECT_FALSE(Check<v1::StoreRequests>(Many(std::string("\x7a\0", 2), 8'000'000)).ok());
  EXPECT_FALSE(Check<v1::StoreRequests>(Many(std::string("\x20\1", 2), 9'000'000)).ok());
}

TEST(MessageLimitsTest, WhatIsNoMessageIsLeftToTheParser) {
  EXPECT_TRUE(Check<v1::StoreRequests>(std::string(100'000, '\x0b')).ok());
  EXPECT_TRUE(Check<v1::StoreRequests>("\x12\x7f" + std::string(100'000, '\xff')).ok());
  EXPECT_TRUE(Check<v1::StoreRequests>("").ok());
}

}  // namespace
}  // namespace ddprun
