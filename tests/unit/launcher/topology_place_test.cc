// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/topology_place.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = "# switches\nn[1-8]  pod0.rack1\n\nn[09-10],m.example  pod0.rack2 # far\n";

std::string In(const std::string& host) { return PlaceInFile(kText, "f", host).value_or("none"); }

TEST(TopologyPlaceTest, ALineOfAFileNamesHosts) {
  EXPECT_EQ(In("n1"), "pod0.rack1");
  EXPECT_EQ(In("n8.example"), "pod0.rack1");
  EXPECT_EQ(In("n10"), "pod0.rack2");
  EXPECT_EQ(In("m"), "pod0.rack2");
  EXPECT_EQ(In("m.example"), "pod0.rack2");
  EXPECT_EQ(In("m.other"), "none");
  EXPECT_EQ(PlaceInFile(kText, "f", "n11").status().message(),
            "--topology-file f does not name host n11; add a line: n11 PLACE");
}

TEST(TopologyPlaceTest, AMistakeNamesItsLine) {
  const auto error = [](const std::string& text) {
    return std::string(PlaceInFile(text, "f", "n1").status().message());
  };
  EXPECT_EQ(error("a b\nn1\n"), "f:2 has 1 words; write HOSTS PLACE, as n[1-8] rack1");
  EXPECT_THAT(error("n1 rack 7"), HasSubstr("f:1 has 3 words"));
  EXPECT_THAT(error("n[1-\t x"), HasSubstr("f:1"));
  EXPECT_THAT(error("n1 " + std::string(257, 'x')), HasSubstr("f:1 has a place of 257 bytes"));
}

std::string Found(const std::string& flags, const Variables& variables) {
  const auto read = [](const std::string& path) -> absl::StatusOr<std::string> {
    if (path == "f") return std::string(kText);
    return absl::NotFoundError("cannot read " + path);
  };
  const std::string nodes = "--nnodes 2 --rdzv-endpoint h:1 ";
  const auto place = FindTopology(ParsedLine(nodes + flags), "n2", From(variables), read);
  return place.ok() ? *place : std::string(place.status().message());
}

TEST(TopologyPlaceTest, TheFirstSourceThatIsThere) {
  const Variables slurm = {{"SLURM_TOPOLOGY_ADDR", "s0.s1.n2"}};
  const Variables both = {{"SLURM_TOPOLOGY_ADDR", "s0.s1.n2"}, {"DDPRUN_TOPOLOGY", "zone1/rack7"}};
  EXPECT_EQ(Found("", both), "");
  EXPECT_EQ(Found("--rank-order host", both), "");
  EXPECT_EQ(Found("--rank-order topology", slurm), "s0.s1.n2");
  EXPECT_EQ(Found("--rank-order topology", both), "zone1/rack7");
  EXPECT_EQ(Found("--rank-order topology --topology-file f", both), "pod0.rack1");
  EXPECT_EQ(Found("--rank-order topology --topology-file g", both), "cannot read g");
  EXPECT_THAT(Found("--rank-order topology", {}),
              HasSubstr("needs the place of host n2 in the network, and neither DDPRUN_TOPOLOGY"));
  EXPECT_THAT(Found("--rank-order topology", {{"DDPRUN_TOPOLOGY", std::string(300, 'x')}}),
              HasSubstr("DDPRUN_TOPOLOGY has 300 bytes"));
}

TEST(TopologyPlaceTest, ANodeAloneNeedsNoPlace) {
  EXPECT_EQ(*FindTopology(ParsedLine("--rank-order topology"), "n2", From({}), NoFiles), "n2");
}

TEST(TopologyPlaceTest, AFileThatIsNotReadIsAMistake) {
  EXPECT_THAT(LineError("--topology-file f"),
              HasSubstr("--topology-file is only read with --rank-order topology"));
  EXPECT_THAT(LineError("--rank-order switch"), HasSubstr("join, host or topology"));
}

}  // namespace
}  // namespace ddprun
