// SPDX-License-Identifier: Apache-2.0
#include "proto/json_text.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(JsonText, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(JsonText(nlohmann::json{{"a", "caf\xe9"}}), "{\"a\":\"caf\xef\xbf\xbd\"}");
  EXPECT_EQ(JsonText(nlohmann::json{{"a", "caf\xc3\xa9"}}), "{\"a\":\"caf\xc3\xa9\"}");
  EXPECT_EQ(JsonText(nlohmann::ordered_json{{"b", 1}, {"a", 2}}, 1), "{\n \"b\": 1,\n \"a\": 2\n}");
}

TEST(JsonText, ANameThatIsNotUtf8KeepsItsBytes) {
  EXPECT_EQ(Utf8Name("cat"), "cat");
  EXPECT_EQ(Utf8Name("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(Utf8Name("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(Utf8Name("\xc3\xa9\xff"), "\\xc3\\xa9\\xff");
  EXPECT_NE(Utf8Name("\xe8"), Utf8Name("\xe9"));
  EXPECT_EQ(Utf8Name(""), "");
}

}  // namespace
}  // namespace ddprun
