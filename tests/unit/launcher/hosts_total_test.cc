// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_total.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

// "a:2 b:1"
std::string Text(const std::vector<HostEntry>& hosts) {
  std::string text;
  for (const HostEntry& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name;
    if (host.slots.has_value()) text += ":" + std::to_string(*host.slots);
  }
  return text;
}

std::string Shared(const std::string& flags) {
  const Options options = ParsedLine(flags);
  const auto hosts = ShareTotal(options, options.hosts.hosts);
  EXPECT_TRUE(hosts.ok()) << flags << ": " << hosts.status();
  return hosts.ok() ? Text(*hosts) : "";
}

std::string WhyNot(const std::string& flags) {
  const Options options = ParsedLine(flags);
  const auto hosts = ShareTotal(options, options.hosts.hosts);
  EXPECT_FALSE(hosts.ok()) << flags;
  return std::string(hosts.status().message());
}

TEST(HostsTotalTest, WithoutATotalHostsAreAsTheyWere) { EXPECT_EQ(Shared("-H a:2,b"), "a:2 b"); }

TEST(HostsTotalTest, SlotsAreFilledInOrder) {
  EXPECT_EQ(Shared("-H a:2,b:2 -n 4"), "a:2 b:2");
  EXPECT_EQ(Shared("-H a:2,b:2 -n 3"), "a:2 b:1");
  EXPECT_EQ(Shared("-H a:2,b:2 -n 2"), "a:2");
  EXPECT_EQ(Shared("-H a:2,b -n 3"), "a:2 b:1");
}

TEST(HostsTotalTest, HostsWithoutANumberShareEvenly) {
  EXPECT_EQ(Shared("-H a,b -n 8"), "a:4 b:4");
  EXPECT_EQ(Shared("-H a,b,c -n 2"), "a:1 b:1");
  EXPECT_EQ(WhyNot("-H a,b -n 5"),
            "-n 5 cannot be divided evenly among 2 hosts; say how many each has (a:N), or give a "
            "multiple of 2");
}

TEST(HostsTotalTest, TheNumberOfANodeSaysHowManyHosts) {
  EXPECT_EQ(Shared("-H a,b,c -n 8 -ppn 4"), "a b");
  EXPECT_EQ(WhyNot("-H a,b -n 12 -ppn 4"),
            "-n 12 with 4 workers on each host needs 3 hosts, and 2 are given; name more, or start "
            "fewer workers");
  EXPECT_THAT(WhyNot("-H a,b -n 6 -ppn 4"), ::testing::HasSubstr("no multiple"));
  EXPECT_EQ(WhyNot("-H a,b,c -n 8 -ppn 4 --nnodes 3"),
            "-n 8 contradicts --nproc-per-node 4 on 3 nodes, which makes 12; leave one of the "
            "numbers out");
}

TEST(HostsTotalTest, TheNumberOfNodesDividesIt) {
  EXPECT_EQ(Shared("-H a:4,b:4,c:4 -n 4 --nnodes 2"), "a:2 b:2 c:2");  // c is a spare
  EXPECT_EQ(WhyNot("-H a:2,b:4 -n 8 --nnodes 2"),
            "-n 8 on 2 hosts are 4 on each, and a has 2 slots; give it more, or start fewer "
            "workers");
}

TEST(HostsTotalTest, MoreThanTheSlotsIsRefused) {
  EXPECT_EQ(WhyNot("-H a:2,b:2 -n 5"),
            "-n 5 is more than the 4 slots of 2 hosts; give the hosts more (HOST:N), or start "
            "fewer workers");
}

TEST(HostsTotalTest, TheNodesAreNotToldTheTotal) {
  EXPECT_THAT(ParsedLine("-H a:2,b:2 -n 4 --log-time utc").hosts.forwarded,
              ::testing::ElementsAre("--log-time=utc"));
}

}  // namespace
}  // namespace ddprun
