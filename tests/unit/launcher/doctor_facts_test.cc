// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/doctor/doctor_probe.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DoctorFacts, DefaultRoutesOfTheLowestMetric) {
  const std::string head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n";
  const std::string eth0 = "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
  const std::string wlan0 = "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n";
  const std::string net = "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
  EXPECT_EQ(CountDefaultRoutes("", ""), 0);
  EXPECT_EQ(CountDefaultRoutes(head + net, ""), 0);
  EXPECT_EQ(CountDefaultRoutes(head + wlan0 + eth0 + net, ""), 1);
  EXPECT_EQ(CountDefaultRoutes(head + eth0 + wlan0 + eth0, ""), 2);
  const std::string zeros(32, '0');
  const std::string v6 = absl::StrCat(zeros, " 00 ", zeros,
                                      " 00 fe800000000000000000000000000001 "
                                      "00000400 00000001 00000000 00000003     eth0\n");
  const std::string none = absl::StrCat(zeros, " 00 ", zeros, " 00 ", zeros,
                                        " ffffffff 00000001 00000000 00200200       lo\n");
  EXPECT_EQ(CountDefaultRoutes("", v6 + none), 1);
  EXPECT_EQ(CountDefaultRoutes("", v6 + v6 + none), 2);
}

TEST(DoctorFacts, WhoListens) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
      "   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "4711 1 0000000000000000 100 0 0 10 0\n"
      "   1: 0100007F:733D 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 "
      "4712 1 0000000000000000 20 4 30 10 -1\n";
  EXPECT_EQ(ListeningInode(table, 29500), "4711");
  EXPECT_EQ(ListeningInode(table, 29501), std::nullopt);  // connected
  EXPECT_EQ(ListeningInode(table, 80), std::nullopt);
}

TEST(DoctorFacts, TheHolderOfAPortIsFound) {
  const auto server = ProbeServer::Start("127.0.0.1");
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(PortHolder((*server)->port()), HasSubstr(absl::StrCat("(pid ", getpid(), ")")));
}

TEST(DoctorFacts, Versions) {
  EXPECT_EQ(NcclVersionIn("..NCCL version %d.%d.."), "");
  const char bytes[] = "..NCCL version %d.%d..\0NCCL version 2.27.7+cuda13.0\0..";
  EXPECT_EQ(NcclVersionIn({bytes, sizeof(bytes)}), "2.27.7");
  EXPECT_EQ(
      DriverVersionIn("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n"
                      "GCC version:  gcc version 12.2.0\n"),
      "580.95.05");
  EXPECT_EQ(DriverVersionIn(""), "");
}

TEST(DoctorFacts, VariablesAsOthersMaySeeThem) {
  EXPECT_EQ(ShownVariable("NCCL_DEBUG", "INFO"), "INFO");
  EXPECT_EQ(ShownVariable("HOME", "/root"), std::nullopt);
  EXPECT_EQ(ShownVariable("SLURM_PROCID", "1"), std::nullopt);
  const std::string key = *ShownVariable("LICENSE_KEY", "secret");
  EXPECT_EQ(key.front(), kHashMark);
  EXPECT_THAT(key, Not(HasSubstr("secret")));
  EXPECT_EQ(key, ShownVariable("LICENSE_KEY", "secret"));
  EXPECT_NE(key, ShownVariable("LICENSE_KEY", "other"));
}

TEST(DoctorProbe, MeasuresTheWayToAServerAndNamesTheOthers) {
  const auto server = ProbeServer::Start("127.0.0.1");
  ASSERT_TRUE(server.ok()) << server.status();
  const auto other = ProbeServer::Start("127.0.0.1");
  ASSERT_TRUE(other.ok()) << other.status();
  int closed = 0;
  {
    const auto ended = ProbeServer::Start("127.0.0.1");
    ASSERT_TRUE(ended.ok());
    closed = (*ended)->port();
  }
  Probe probe(
      7, {{.node = 1, .address = "127.0.0.1", .port = (*server)->port(), .key = (*server)->key()},
          {.node = 2, .address = "127.0.0.1", .port = closed, .key = (*server)->key()},
          {.node = 3, .address = "127.0.0.1", .port = (*other)->port(), .key = (*server)->key()},
          {.node = 4, .address = "no address", .port = 1, .key = ""}});
  probe.Send(1);
  probe.Send(2);
  const std::vector<PairFacts>& pairs = probe.pairs();
  ASSERT_EQ(pairs.size(), 4u);
  EXPECT_EQ(pairs[0].error, "");
  EXPECT_EQ(pairs[0].from, 7);
  EXPECT_GT(pairs[0].rtt_seconds, 0);
  // One machine has one clock.
  EXPECT_LE(std::abs(pairs[0].skew_seconds), pairs[0].skew_uncertainty + 1e-3);
  EXPECT_GT(pairs[0].bytes_per_second, 0);
  EXPECT_THAT(pairs[1].error, HasSubstr("refused"));
  EXPECT_THAT(pairs[2].error, HasSubstr("no ddprun doctor"));
  EXPECT_NE(pairs[3].error, "");
}

}  // namespace
}  // namespace ddprun
