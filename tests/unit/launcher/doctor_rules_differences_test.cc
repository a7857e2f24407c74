// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/doctor/doctor_rules.h"
#include "tests/unit/launcher/doctor_fixture.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The only complaint, in words.
std::string Only(const Checkup& checkup, const char* check, Health health) {
  const std::vector<Finding> found = Complaints(checkup);
  if (found.size() != 1) return absl::StrCat(found.size(), " complaints");
  EXPECT_EQ(found[0].check, check);
  EXPECT_EQ(found[0].health, health);
  return found[0].text;
}

TEST(DoctorDifferences, OfVersions) {
  Checkup checkup = SoundCheckup(3);
  checkup.nodes[2].version = "1.1";
  EXPECT_THAT(Only(checkup, "version", Health::kWarning),
              HasSubstr("ddprun differs: 1.0 on nodes 0-1, 1.1 on node 2"));
}

TEST(DoctorDifferences, NcclRefusesOtherVersionsAndTheRestOnlyMayFail) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].libraries = {{"NCCL", "2.26.2"}};
  checkup.nodes[1].libraries = {{"NCCL", "2.27.7"}};
  EXPECT_THAT(Only(checkup, "libraries", Health::kFail),
              HasSubstr("2.26.2 on node 0, 2.27.7 on node 1"));
  checkup.nodes[0].libraries = {{"LibTorch", "2.11.0"}};
  checkup.nodes[1].libraries = {};
  EXPECT_THAT(Only(checkup, "libraries", Health::kWarning),
              HasSubstr("LibTorch differs: 2.11.0 on node 0, none on node 1"));
}

TEST(DoctorDifferences, OnlyPythonsThatWereAskedAreCompared) {
  Checkup checkup = SoundCheckup(3);
  checkup.nodes[0].packages = {{"python", "3.11.2"}, {"torch", "2.11.0"}};
  EXPECT_THAT(Complaints(checkup), IsEmpty());
  checkup.nodes[1].packages = {{"python", "3.11.2"}};
  EXPECT_THAT(Only(checkup, "python", Health::kWarning),
              HasSubstr("torch differs: 2.11.0 on node 0, none on node 1"));
}

TEST(DoctorDifferences, DriversAndGpus) {
  Checkup checkup = SoundCheckup(2);
  for (NodeFacts& node : checkup.nodes) {
    node.gpus = 2;
    node.driver = "580.95.05";
    node.gpu_models = {"NVIDIA H200"};
  }
  EXPECT_THAT(Complaints(checkup), IsEmpty());
  checkup.nodes[1].driver = "570.1";
  EXPECT_THAT(Only(checkup, "gpu", Health::kWarning), HasSubstr("the NVIDIA driver differs"));
  checkup.nodes[1].driver = checkup.nodes[0].driver;
  checkup.nodes[1].gpu_models = {"NVIDIA A100"};
  EXPECT_THAT(Only(checkup, "gpu", Health::kWarning), HasSubstr("2 of NVIDIA A100 on node 1"));
}

TEST(DoctorDifferences, VariablesThatWorkersHeedAreShownAndOthersAreNamed) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].environment = {{"NCCL_DEBUG", "INFO"}, {"LICENSE_KEY", "#1234"}, {"A", "#1"}};
  checkup.nodes[1].environment = {{"LICENSE_KEY", "#5678"}, {"A", "#1"}};
  EXPECT_THAT(Only(checkup, "environment", Health::kWarning),
              AllOf(HasSubstr("NCCL_DEBUG differs"), HasSubstr("INFO on node 0"),
                    HasSubstr("not set on node 1")));
  std::string all;
  for (const Finding& finding : Diagnose(checkup)) all += finding.text;
  EXPECT_THAT(all, AllOf(HasSubstr("also differ: LICENSE_KEY"), Not(HasSubstr("1234"))));
}

TEST(DoctorDifferences, PathIsComparedAndNotShown) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].environment = {{"PATH", "#1234"}};
  checkup.nodes[1].environment = {{"PATH", "#5678"}};
  EXPECT_THAT(Only(checkup, "environment", Health::kWarning),
              AllOf(HasSubstr("PATH differs"), Not(HasSubstr("1234"))));
}

TEST(DoctorDifferences, FoldersAndPrograms) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[1].folder = "/home/me";
  EXPECT_THAT(Only(checkup, "folder", Health::kWarning),
              HasSubstr("/work on node 0, /home/me on node 1"));
  checkup = SoundCheckup(2);
  for (NodeFacts& node : checkup.nodes) node.program = "train";
  checkup.nodes[0].program_hash = "aa";
  checkup.nodes[1].program_hash = "bb";
  EXPECT_THAT(Only(checkup, "program", Health::kFail),
              HasSubstr("train is another file on node 0, on node 1"));
  checkup.nodes[1].program_hash = "aa";
  EXPECT_THAT(Complaints(checkup), IsEmpty());
  checkup.nodes[1].program_error = "there is no program train";
  EXPECT_EQ(Only(checkup, "program", Health::kFail), "there is no program train");
}

}  // namespace
}  // namespace ddprun
