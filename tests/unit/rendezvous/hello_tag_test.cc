// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/hello_tag.h"

#include <gtest/gtest.h>

#include "rendezvous/security/credentials.h"

namespace ddprun {
namespace {

Token TokenOf(const std::string& digits) { return *Token::Parse(digits, "it"); }
const std::string kDigits = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const std::string kOtherDigits = "1" + kDigits.substr(1);

TEST(HelloTagTest, IsReadByWhoeverHasTheSecret) {
  const std::string key = DeriveHelloKey(TokenOf(kDigits));
  const std::string name = MakeTaggedName(key);
  const auto tag = ReadTag(key, name);
  ASSERT_TRUE(tag);
  EXPECT_EQ(ReadTag(DeriveHelloKey(TokenOf(kDigits)), name), tag);
  EXPECT_NE(ReadTag(key, MakeTaggedName(key)), tag) << "each channel has its own";
  // A label of a host name.
  EXPECT_LE(name.find('.'), 63u);
}

// Rounded so that no certificate is taken for an expired one.
TEST(HelloTagTest, HasTheTimesOfTheCertificate) {
  const std::string key = DeriveHelloKey(TokenOf(kDigits));
  for (const std::time_t made : {std::time_t{1'790'000'000}, std::time_t{3600}}) {
    const CertificateTimes times{.made = made, .end = made + kNodeCertificateSeconds};
    const auto tag = ReadTag(key, MakeTaggedName(key, times));
    ASSERT_TRUE(tag);
    EXPECT_LE(tag->times.made, times.made);
    EXPECT_GT(tag->times.made, times.made - 3600);
    EXPECT_GE(tag->times.end, times.end);
    EXPECT_LT(tag->times.end, times.end + 3600);
  }
  EXPECT_EQ(ReadTag(key, MakeTaggedName(key))->times, CertificateTimes{});
}

TEST(HelloTagTest, IsNoneWithAnotherSecret) {
  const std::string key = DeriveHelloKey(TokenOf(kDigits));
  EXPECT_FALSE(ReadTag(DeriveHelloKey(TokenOf(kOtherDigits)), MakeTaggedName(key)));
  EXPECT_FALSE(ReadTag("", MakeTaggedName(key)));
  EXPECT_FALSE(ReadTag("", MakeTaggedName("")));
}

TEST(HelloTagTest, EveryChangedDigitMakesItNone) {
  const std::string key = DeriveHelloKey(TokenOf(kDigits));
  const std::string name = MakeTaggedName(key);
  for (std::size_t i = 0; i < name.size(); ++i) {
    std::string changed = name;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(ReadTag(key, changed)) << i;
    EXPECT_FALSE(ReadTag(key, name.substr(0, i))) << i;
  }
  EXPECT_FALSE(ReadTag(key, "x" + name));
  EXPECT_FALSE(ReadTag(key, kServiceName));
}

TEST(HelloTagTest, TheKeyTellsNothingOfTheSecret) {
  const std::string key = DeriveHelloKey(TokenOf(kDigits));
  EXPECT_EQ(key.size(), 32u);
  EXPECT_NE(key, std::string(reinterpret_cast<const char*>(TokenOf(kDigits).bytes()), 32));
  EXPECT_EQ(MintNodeCredentials(TokenOf(kDigits), "run", "a")->hello_key, key);
  EXPECT_EQ(MintServiceCredentials(TokenOf(kDigits))->hello_key, key);
}

}  // namespace
}  // namespace ddprun
