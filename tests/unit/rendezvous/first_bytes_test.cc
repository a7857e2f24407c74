// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/first_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string Number(std::size_t number, int width) {
  std::string bytes;
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes;
}

std::string Counted(const std::string& text, int width) {
  return Number(text.size(), width) + text;
}

// The extension that asks for a host of that name.
std::string ServerName(const std::string& name) {
  return Number(0, 2) + Counted(Counted(Number(0, 1) + Counted(name, 2), 2), 2);
}

// A ClientHello that supports these versions; none: without the extension.
std::string Hello(const std::vector<int>& versions, const std::string& more = "") {
  std::string list;
  for (const int version : versions) list += Number(static_cast<std::size_t>(version), 2);
  const std::string extension = Number(43, 2) + Counted(Counted(list, 1), 2);
  const std::string extensions =
      Number(10, 2) + Counted("groups", 2) + (versions.empty() ? "" : extension) + more;
  const std::string body = Number(0x0303, 2) + std::string(32, 'r') + Counted("session", 1) +
                           Counted("cipher", 2) + Counted(std::string(1, '\0'), 1) +
                           Counted(extensions, 2);
  return Number(0x160301, 3) + Counted(Number(1, 1) + Counted(body, 3), 2);
}

TEST(FirstBytesTest, AHelloIsKnownOnceItIsWhole) {
  const std::string hello = Hello({0x0303, 0x0304});
  for (std::size_t size = 0; size < hello.size(); ++size) {
    EXPECT_EQ(Classify(hello.substr(0, size)), FirstBytes::kIncomplete) << size;
  }
  EXPECT_EQ(Classify(hello), FirstBytes::kTls13);
  EXPECT_EQ(Classify(hello + "more"), FirstBytes::kTls13);
}

TEST(FirstBytesTest, OlderTls) {
  EXPECT_EQ(Classify(Hello({})), FirstBytes::kTlsOlder);
  EXPECT_EQ(Classify(Hello({0x0303, 0x0302})), FirstBytes::kTlsOlder);
}

TEST(FirstBytesTest, TheNameThatAHelloAsksFor) {
  EXPECT_EQ(ServerNameOf(Hello({0x0304}, ServerName("a.b"))), "a.b");
  EXPECT_EQ(ServerNameOf(Hello({0x0304}, ServerName(""))), "");
  EXPECT_EQ(ServerNameOf(Hello({0x0304})), "");
  EXPECT_EQ(ServerNameOf(Hello({0x0304}, Number(0, 2) + Counted("", 2))), "");
  EXPECT_EQ(ServerNameOf("GET / HTTP/1.1"), "");
  EXPECT_EQ(ServerNameOf(""), "");
}

TEST(FirstBytesTest, Http2IsKnownByItsPreface) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  EXPECT_EQ(Classify(preface.substr(0, 5)), FirstBytes::kIncomplete);
  EXPECT_EQ(Classify(preface + "frames"), FirstBytes::kHttp2);
}

TEST(FirstBytesTest, TheRestIsOther) {
  const std::string hello = Hello({0x0304});
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"), std::string("PRI * HTTP/1"), std::string("SSH-2.0-x"),
        std::string(1, '\0'), std::string("\x16\x02"), std::string("\x16\x03\x01\x00\x00", 5),
        std::string("\x16\x03\x01\xff\xff"), std::string("\x16\x03\x01\x00\x10\x02", 6),
        // A hello that says it is longer than its record, and one whose lists overrun it.
        Number(0x160301, 3) + Counted(Number(1, 1) + Number(5000, 3) + "x", 2),
        hello.substr(0, hello.size() - 3) + "\xff\xff\xff"}) {
    EXPECT_EQ(Classify(bytes), FirstBytes::kOther) << bytes;
  }
}

TEST(FirstBytesTest, EveryFlippedByteIsJudgedWithoutReadingBeyond) {
  const std::string hello = Hello({0x0304}, ServerName("a.b"));
  for (std::size_t i = 0; i < hello.size(); ++i) {
    for (const int bit : {1, 16, 128}) {
      // Of its exact size on the heap, so that a sanitizer sees a read beyond it.
      std::string changed = hello;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      changed.shrink_to_fit();
      Classify(changed);
      ServerNameOf(changed);
    }
  }
}

std::string FrameHeader(std::size_t size, char type, std::size_t stream) {
  return Number(size, 3) + type + '\0' + Number(stream, 4);
}

TEST(FirstBytesTest, APlainTextCallIsAnsweredOnceItIsThere) {
  PlainTextRefusal refusal("use TLS");
  EXPECT_EQ(refusal.Begin(), std::string("\0\0\0\x04\0\0\0\0\0", 9));
  const std::string input = FrameHeader(6, 4, 0) + "sixsix" + FrameHeader(20, 1, 3);
  std::string answer;
  for (const char byte : input) {
    EXPECT_TRUE(answer.empty());
    answer += refusal.Feed({&byte, 1});
  }
  EXPECT_TRUE(refusal.done());
  EXPECT_THAT(answer, HasSubstr("grpc-message\x07use TLS"));
  EXPECT_EQ(answer.substr(3, 6), std::string("\x01\x05\0\0\0\x03", 6));
}

TEST(FirstBytesTest, APlainTextPeerThatMakesNoCallIsGivenUp) {
  PlainTextRefusal large("use TLS");
  EXPECT_EQ(large.Feed(FrameHeader(1 << 20, 0, 1)), "");
  EXPECT_TRUE(large.done());
  PlainTextRefusal endless("use TLS");
  const std::string ping = FrameHeader(8, 6, 0) + "pingping";
  for (int i = 0; i < 5000 && !endless.done(); ++i) EXPECT_EQ(endless.Feed(ping), "");
  EXPECT_TRUE(endless.done());
}

TEST(PrintableTest, NothingReachesATerminalThatCouldMoveItsCursor) {
  EXPECT_EQ(Printable("node-0\tG\xC3\xB6ttingen"), "node-0\tG\xC3\xB6ttingen");
  EXPECT_EQ(Printable("a\r\nddprun: b\x07\x7f"), "a??ddprun: b??");
  EXPECT_EQ(Printable("\x1b[31mred\x1b[0m\x1b[2J"), "red");
  EXPECT_EQ(Printable("\x1b]0;title\x07\x1b["), "?]0;title??[");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "?31m");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a?b");
}

}  // namespace
}  // namespace ddprun
