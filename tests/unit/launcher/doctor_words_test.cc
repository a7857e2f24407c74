// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/doctor/doctor_rules.h"
#include "tests/unit/launcher/doctor_fixture.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DoctorWords, FactsComeBackAsTheyWent) {
  NodeFacts facts = SoundNode(3);
  facts.environment = {{"NCCL_DEBUG", "INFO"}};
  facts.libraries = {{"NCCL", "2.27.7"}};
  facts.cpu_quota = 1.5;
  const auto back = Parse<NodeFacts>(Encode(facts));
  ASSERT_TRUE(back.ok()) << back.status();
  // Every member is in the words, so the same words mean the same facts.
  EXPECT_EQ(Encode(*back), Encode(facts));
  EXPECT_EQ(back->environment, facts.environment);
  EXPECT_EQ(back->shm_free, facts.shm_free);
  EXPECT_EQ(back->cpu_quota, 1.5);
}

TEST(DoctorWords, WhatAnotherVersionDoesNotSayHasItsDefault) {
  const auto facts = Parse<NodeFacts>(R"({"host": "a", "something": [1]})");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->host, "a");
  EXPECT_EQ(facts->nofile, kNoNumber);
}

TEST(DoctorWords, WhatIsNoneIsAnError) {
  for (const char* words : {"", "{", "[]", R"({"host": 7})"}) {
    EXPECT_THAT(std::string(Parse<NodeFacts>(words).status().message()),
                HasSubstr("install the same ddprun"))
        << words;
  }
  EXPECT_FALSE(Parse<std::vector<PairFacts>>("{}").ok());
  EXPECT_FALSE(Parse<DoctorReport>("7").ok());
}

TEST(DoctorWords, AnEnvironmentThatIsTooLargeStaysBehind) {
  NodeFacts facts = SoundNode(0);
  for (int i = 0; i < 2000; ++i) facts.environment[absl::StrCat("NAME", i)] = std::string(200, 'x');
  const std::string words = Encode(facts);
  EXPECT_LE(words.size(), kFactsBytesMax);
  EXPECT_EQ(Parse<NodeFacts>(words)->host, "host0");
}

TEST(DoctorWords, PairsAndReports) {
  const auto pairs = Parse<std::vector<PairFacts>>(Encode(SoundCheckup(2).pairs));
  ASSERT_TRUE(pairs.ok());
  ASSERT_EQ(pairs->size(), 2u);
  EXPECT_EQ((*pairs)[1].to, 0);
  EXPECT_EQ((*pairs)[0].bytes_per_second, 1e9);
  const auto report = Parse<DoctorReport>(Encode(DoctorReport{1, "text", "json"}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->exit_code, 1);
  EXPECT_EQ(report->text, "text");
  EXPECT_EQ(report->json, "json");
  const DoctorReport large{1, "text", std::string(kReportBytesMax, 'x')};
  EXPECT_LE(Encode(large).size(), kReportBytesMax);
  EXPECT_EQ(Parse<DoctorReport>(Encode(large))->text, "text");
}

TEST(DoctorText, LinesFitAndSayWhoAndWhat) {
  Checkup checkup = SoundCheckup(3);
  checkup.nodes[1].nofile = checkup.nodes[2].nofile = 256;
  checkup.nodes[2].shm_bytes = checkup.nodes[2].shm_free = 1 << 20;
  const std::string text = DoctorText(checkup, Diagnose(checkup));
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, HasSubstr("  node 2  host2  10.0.0.3 on eth0\n"));
  EXPECT_THAT(text, HasSubstr("\nnofile       1-2   warn workers may open 256 files"));
  EXPECT_THAT(text, HasSubstr("\nshm          2     FAIL /dev/shm has 1 MiB free of 1 MiB"));
  EXPECT_THAT(text, HasSubstr("\n1 FAIL, 1 warning\n"));
}

TEST(DoctorText, ManyNumbersFitToo) {
  Checkup checkup = SoundCheckup(200);
  for (std::size_t node = 0; node < 200; node += 2) checkup.nodes[node].nofile = 256;
  const std::string text = DoctorText(checkup, Diagnose(checkup));
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, HasSubstr("  and 184 more\n"));
  EXPECT_THAT(text, HasSubstr("\nnofile       100 nodes warn 0,2,4,6,8,10,"));
}

TEST(DoctorText, OneMachineNeedsNoNumbers) {
  const Checkup checkup = SoundCheckup(1);
  const std::string text = DoctorText(checkup, Diagnose(checkup));
  EXPECT_THAT(text, Not(HasSubstr("NODES")));
  EXPECT_THAT(text, HasSubstr("nothing found"));
}

TEST(DoctorText, JsonHasTheFindingsAndNoEnvironment) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[1].nofile = 256;
  checkup.nodes[0].host = "\xff";
  checkup.nodes[0].environment = checkup.nodes[1].environment = {{"NCCL_DEBUG", "INFO"}};
  const std::string text = DoctorJson(checkup, Diagnose(checkup));
  EXPECT_THAT(text, Not(HasSubstr("NCCL_DEBUG")));
  const nlohmann::json whole = nlohmann::json::parse(text);
  EXPECT_EQ(whole["success"], true);
  EXPECT_EQ(whole["warnings"], 1);
  EXPECT_EQ(whole["pairs"].size(), 2u);
  EXPECT_EQ(whole["nodes"][1]["host"], "host1");
  bool found = false;
  for (const auto& finding : whole["findings"]) {
    if (finding["check"] != "nofile" || finding["verdict"] != "warn") continue;
    found = true;
    EXPECT_EQ(finding["nodes"], nlohmann::json::array({1}));
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace ddprun
