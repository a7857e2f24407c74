// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/first_bytes.h"

#include <gtest/gtest.h>

#include "tests/testing/client_hello.h"

namespace ddprun {
namespace {

using Kind = FirstBytes::Kind;

Kind KindOf(absl::string_view bytes) { return ReadFirstBytes(bytes).kind; }

TEST(FirstBytesTest, AHelloIsKnownOnceItIsWhole) {
  const std::string hello = MakeClientHello("");
  for (std::size_t size = 0; size < hello.size(); ++size) {
    EXPECT_EQ(KindOf(hello.substr(0, size)), Kind::kIncomplete) << size;
  }
  EXPECT_EQ(KindOf(hello), Kind::kTls13);
  EXPECT_EQ(KindOf(hello + "more"), Kind::kTls13);
}

// As RFC 8446, section 5.1 allows.
TEST(FirstBytesTest, AHelloInTwoRecords) {
  const std::string hello = MakeClientHello("a.b");
  const std::string type = hello.substr(0, 3);
  const auto size = static_cast<char>(100);
  const std::string rest = hello.substr(5 + 100);
  const std::string first = type + '\0' + size + hello.substr(5, 100);
  EXPECT_EQ(KindOf(first), Kind::kIncomplete);
  const std::string both =
      first + type + static_cast<char>(rest.size() >> 8) + static_cast<char>(rest.size()) + rest;
  EXPECT_EQ(KindOf(both), Kind::kTls13);
  EXPECT_EQ(ReadFirstBytes(both).server_name, "a.b");
}

TEST(FirstBytesTest, OlderTls) {
  EXPECT_EQ(KindOf(MakeClientHello("a.b", TLS1_2_VERSION)), Kind::kTlsOlder);
}

TEST(FirstBytesTest, TheNameThatAHelloAsksFor) {
  EXPECT_EQ(ReadFirstBytes(MakeClientHello("a.b")).server_name, "a.b");
  EXPECT_EQ(ReadFirstBytes(MakeClientHello("")).server_name, "");
  EXPECT_EQ(ReadFirstBytes("GET / HTTP/1.1").server_name, "");
}

TEST(FirstBytesTest, Http2IsKnownByItsPreface) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  EXPECT_EQ(KindOf(preface.substr(0, 5)), Kind::kIncomplete);
  EXPECT_EQ(KindOf(preface + "frames"), Kind::kHttp2);
}

TEST(FirstBytesTest, TheRestIsOther) {
  std::string longer = MakeClientHello("");  // than its record
  longer[6] = '\x7f';
  std::string overrun = MakeClientHello("");  // the last extension goes on beyond the end
  overrun.replace(overrun.size() - 40, 4, "\xff\xff\xff\xff");
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"), std::string("PRI * HTTP/1"), std::string("SSH-2.0-x"),
        std::string(1, '\0'), std::string("\x16\x02\x01\x00\x01x", 6),
        std::string("\x16\x03\x01\xff\xff"), std::string("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9),
        longer, overrun}) {
    EXPECT_EQ(KindOf(bytes), Kind::kOther) << bytes;
  }
}

TEST(FirstBytesTest, EveryFlippedByteIsJudgedWithoutReadingBeyond) {
  const std::string hello = MakeClientHello("a.b");
  for (std::size_t i = 0; i < hello.size(); ++i) {
    for (const int bit : {1, 16, 128}) {
      // Has its exact size on the heap, so that a sanitizer sees a read beyond it.
      std::string changed = hello;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      changed.shrink_to_fit();
      const FirstBytes found = ReadFirstBytes(changed);
      EXPECT_TRUE(found.kind == Kind::kTls13 || found.server_name.empty()) << i;
    }
  }
}

}  // namespace
}  // namespace ddprun
