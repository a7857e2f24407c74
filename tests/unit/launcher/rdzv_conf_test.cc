// SPDX-License-Identifier: Apache-2.0
// Every key that torchrun's rendezvous backends read, and those that they swallow.
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>

#include "rendezvous/base/limits.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using std::chrono::milliseconds;
using std::chrono::seconds;

Options WithConf(const std::string& conf) { return ParsedLine("--rdzv-conf " + conf); }
std::string ConfError(const std::string& conf) { return LineError("--rdzv-conf " + conf); }

TEST(RdzvConfTest, TimesOfTheMeeting) {
  EXPECT_EQ(WithConf("join_timeout=7").join_timeout, seconds(7));
  EXPECT_EQ(WithConf("timeout=8").join_timeout, seconds(8));
  EXPECT_EQ(WithConf("last_call_timeout=3").last_call, seconds(3));
  EXPECT_EQ(ParsedLine("--join-timeout 5 --rdzv-conf join_timeout=7").join_timeout, seconds(5));
}

TEST(RdzvConfTest, KeepAliveIsTheLease) {
  EXPECT_EQ(ParsedLine("").lease, kLeaseDefault);
  EXPECT_EQ(WithConf("keep_alive_interval=2").lease, seconds(6));
  EXPECT_EQ(WithConf("keep_alive_max_attempt=4").lease, seconds(20));
  EXPECT_EQ(WithConf("keep_alive_interval=0.5,keep_alive_max_attempt=2").lease, milliseconds(1000));
  EXPECT_EQ(ParsedLine("--lease 9 --rdzv-conf keep_alive_interval=2").lease, seconds(9));
  EXPECT_EQ(WithConf("keep_alive_interval=86400,keep_alive_max_attempt=1000").lease,
            milliseconds(kLeaseMax));
}

TEST(RdzvConfTest, WhoHosts) {
  EXPECT_EQ(ParsedLine("").is_host, std::nullopt);
  for (const char* yes : {"1", "true", "T", "yes"})
    EXPECT_EQ(WithConf(std::string("is_host=") + yes).is_host, true) << yes;
  for (const char* no : {"0", "False", "n"})
    EXPECT_EQ(WithConf(std::string("is_host=") + no).is_host, false) << no;
  EXPECT_THAT(ConfError("is_host=maybe"), HasSubstr("--rdzv-conf is_host 'maybe' is not true"));
}

TEST(RdzvConfTest, KeysWithoutEffectAreNoted) {
  for (const char* key : {"close_timeout", "heartbeat_timeout", "read_timeout",
                          "cas_backoff_max_seconds", "rank", "use_libuv"}) {
    EXPECT_THAT(WithConf(std::string(key) + "=1").notes, ElementsAre(HasSubstr(key))) << key;
  }
  EXPECT_THAT(WithConf("store_type=tcp").notes, ElementsAre(HasSubstr("store_type")));
  EXPECT_THAT(WithConf("protocol=https").notes, ElementsAre(HasSubstr("TLS")));
}

TEST(RdzvConfTest, SettingsOfEtcdAreNotSilentlyDropped) {
  for (const char* key :
       {"etcd_prefix", "ssl_cert", "ssl_cert_key", "ca_cert", "cert", "key", "cacert"}) {
    EXPECT_THAT(ConfError(std::string(key) + "=x"), AllOf(HasSubstr(key), HasSubstr("etcd")));
  }
  EXPECT_THAT(ConfError("store_type=file"), HasSubstr("'file' is not known"));
}

TEST(RdzvConfTest, WhatTorchrunSwallowsIsRefused) {
  EXPECT_THAT(ConfError("join_timeot=3"), HasSubstr("did you mean join_timeout?"));
  EXPECT_THAT(ConfError("colour=blue"), HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(ConfError("timeout=1,timeout=2"), HasSubstr("the key 'timeout' twice"));
  EXPECT_THAT(ConfError("timeout"), HasSubstr("timeout '' is not a value"));
  EXPECT_THAT(ConfError("timeout=,"), HasSubstr("timeout '' is not a value"));
  EXPECT_THAT(ConfError("keep_alive_max_attempt=0"), HasSubstr("'0' is not a whole number"));
  EXPECT_THAT(ConfError("keep_alive_interval=0.001"), HasSubstr("is too short"));
}

TEST(RdzvConfTest, SpacesAreOfNoMeaning) {
  const auto parsed =
      ParseOptions({"--rdzv-conf", " timeout = 3 , last_call_timeout=4 ", "true"}, From({}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<Options>(*parsed).join_timeout, seconds(3));
  EXPECT_EQ(std::get<Options>(*parsed).last_call, seconds(4));
}

TEST(RdzvConfTest, MayBeInQuotes) {
  EXPECT_EQ(WithConf("'last_call_timeout=5,timeout=9'").last_call, seconds(5));
  EXPECT_EQ(WithConf("\"timeout=9\"").join_timeout, seconds(9));
  EXPECT_THAT(ConfError("'timeout=9"), HasSubstr("unknown key ''timeout'"));
  EXPECT_EQ(WithConf("''").last_call, WithConf("last_call_timeout=30").last_call);
}

}  // namespace
}  // namespace ddprun
