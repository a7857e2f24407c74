// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/hosts_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<HostEntry> Hosts(absl::string_view text) {
  absl::StatusOr<std::vector<HostEntry>> hosts = ParseHosts(text, "-H");
  EXPECT_TRUE(hosts.ok()) << hosts.status();
  return hosts.ok() ? *hosts : std::vector<HostEntry>();
}

std::string Error(absl::string_view text) {
  return std::string(ParseHosts(text, "-H").status().message());
}

TEST(HostsList, TakesWhatMpirunAndHorovodrunTake) {
  EXPECT_THAT(Hosts("a:2,b:3"), ElementsAre(HostEntry{"a", 2}, HostEntry{"b", 3}));
  EXPECT_THAT(Hosts("a, alice@b.example"), ElementsAre(HostEntry{"a", std::nullopt},
                                                       HostEntry{"alice@b.example", std::nullopt}));
}

TEST(HostsList, AHostThatIsNamedAgainHasMoreSlots) {
  EXPECT_THAT(Hosts("a:2,b,a:3"), ElementsAre(HostEntry{"a", 5}, HostEntry{"b", std::nullopt}));
  EXPECT_THAT(Hosts("a,a,a"), ElementsAre(HostEntry{"a", 3}));
}

TEST(HostsList, ExpandsRangesAsSlurmWritesThem) {
  EXPECT_THAT(Hosts("n[01-03,7]:8"), ElementsAre(HostEntry{"n01", 8}, HostEntry{"n02", 8},
                                                 HostEntry{"n03", 8}, HostEntry{"n7", 8}));
  EXPECT_THAT(*ExpandHostlist("r[1-2]n[9-10]-ib,x", "L"),
              ElementsAre("r1n9-ib", "r1n10-ib", "r2n9-ib", "r2n10-ib", "x"));
  EXPECT_THAT(*ExpandHostlist("n[099-101]", "L"), ElementsAre("n099", "n100", "n101"));
}

TEST(HostsList, AnIpv6AddressStandsInBracketsWhereSlotsFollow) {
  EXPECT_THAT(Hosts("[fe80::1]:2,::1,[::2]"),
              ElementsAre(HostEntry{"fe80::1", 2}, HostEntry{"::1", std::nullopt},
                          HostEntry{"::2", std::nullopt}));
}

TEST(HostsList, SaysWhatIsWrong) {
  EXPECT_THAT(Error("a,,b"), HasSubstr("has an empty name"));
  EXPECT_THAT(Error("a:0"), HasSubstr("gives a '0' slots"));
  EXPECT_THAT(Error("a:x"), HasSubstr("gives a 'x' slots"));
  EXPECT_THAT(Error("n[3-1]"), HasSubstr("no range; write it as [01-04,7]"));
  EXPECT_THAT(Error("n[1-"), HasSubstr("a ] is missing"));
  EXPECT_THAT(Error("n[0-999999999]"), HasSubstr("names more than"));
  EXPECT_THAT(Error("n[0-9999]x[0-9999]"), HasSubstr("names more than"));
  EXPECT_THAT(Error("hosts/list"), HasSubstr("--hostfile"));
  // ssh would take it for an option that runs a command here.
  EXPECT_THAT(Error("-oProxyCommand=x"), HasSubstr("no name of a host"));
  EXPECT_THAT(Error("a@-x"), HasSubstr("no name of a host"));
  EXPECT_THAT(Error("a;b"), HasSubstr("no name of a host"));
}

// Each of these is a few kilobytes that would name billions of hosts.
TEST(HostsList, ShortTextsOfRangesAreRefusedQuicklyAndInOneSentence) {
  std::string ranges = "n[0-99999";
  for (int i = 0; i < 2400; ++i) ranges += ",0-99999";
  std::string brackets = "n";
  for (int i = 0; i < 4000; ++i) brackets += "[1-2]";
  std::string ones = "n[0-9999]";
  for (int i = 0; i < 4000; ++i) ones += "[1]";
  std::string lines;
  for (int i = 0; i < 2400; ++i) lines += "n[0-99999]\n";
  const auto begin = std::chrono::steady_clock::now();
  const std::pair<std::string, std::string> texts[] = {
      {ranges + "]", "names more than 100000 hosts"},
      {brackets, "with more than 8 ranges"},
      {ones, "with more than 8 ranges"},
      {lines, "names more than 100000 hosts"},
      {"n[0-99999]" + std::string(20'000, 'x'), "a name of more than 256 characters"},
      {std::string(20'000, 'x'), "a name of more than 256 characters"},
  };
  for (const auto& [text, sentence] : texts) {
    const absl::Status status = ParseHostfile(text, "hosts.txt").status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(sentence));
    EXPECT_LT(status.message().size(), 200u);
  }
  EXPECT_THAT(Error(ranges + "]"), HasSubstr("names more than 100000 hosts"));
  EXPECT_FALSE(ExpandHostlist(ranges + "]", "L").ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(HostsList, AHundredThousandHostsOneByOneAreReadInMuchLessThanAMinute) {
  std::string lines;
  for (int i = 0; i < kNodesMax; ++i) lines += absl::StrCat("host", i, "\n");
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<std::vector<HostEntry>> hosts = ParseHostfile(lines, "hosts.txt");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->size(), static_cast<std::size_t>(kNodesMax));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(HostsList, ReadsTheHostfilesOfOtherLaunchers) {
  const absl::StatusOr<std::vector<HostEntry>> hosts = ParseHostfile(
      "# mpirun\n"
      "a slots=2 max_slots=4\n\n"
      "b:3   # hydra\r\n"
      "\tn[1-2] slots=8\n"
      "c\nc\n",
      "hosts.txt");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostEntry{"a", 2}, HostEntry{"b", 3}, HostEntry{"n1", 8},
                                  HostEntry{"n2", 8}, HostEntry{"c", 2}));
}

TEST(HostsList, AHostfilesErrorNamesItsLine) {
  EXPECT_THAT(std::string(ParseHostfile("a\nb slot=2\n", "hosts.txt").status().message()),
              testing::AllOf(HasSubstr("hosts.txt line 2"), HasSubstr("'slot=2'")));
  EXPECT_THAT(std::string(ParseHostfile("# none\n", "hosts.txt").status().message()),
              HasSubstr("names no host"));
}

}  // namespace
}  // namespace ddprun
