// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Names = std::vector<std::string>;

const std::vector<Gpu> kFour = {{"GPU-aaaa-1", 0}, {"GPU-bbbb-2", 0}, {"GPU-cccc-3", 1}, {"", 1}};

Names Chosen(const Names& visible, const Names& wanted) {
  auto chosen = ChooseGpus(visible, wanted, kFour);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  return chosen.value_or(Names{});
}

std::string WhyNot(const Names& visible, const Names& wanted) {
  const auto chosen = ChooseGpus(visible, wanted, kFour);
  EXPECT_TRUE(absl::IsNotFound(chosen.status())) << chosen.status();
  return std::string(chosen.status().message());
}

TEST(GpusTest, CudaVisibleDevicesLimitsWhatIsThere) {
  EXPECT_THAT(VisibleGpus(3, std::nullopt), ElementsAre("0", "1", "2"));
  EXPECT_THAT(VisibleGpus(8, "0,3"), ElementsAre("0", "3"));
  EXPECT_THAT(VisibleGpus(8, "GPU-1a, GPU-2b"), ElementsAre("GPU-1a", "GPU-2b"));
  EXPECT_THAT(VisibleGpus(8, "0,-1,1"), ElementsAre("0"));
  EXPECT_THAT(VisibleGpus(2, "1,2,0"), ElementsAre("1"));
  EXPECT_THAT(VisibleGpus(8, ""), IsEmpty());
  EXPECT_THAT(VisibleGpus(8, "-1"), IsEmpty());
  EXPECT_THAT(VisibleGpus(0, "0,1"), IsEmpty());
}

TEST(GpusTest, NothingWantedIsAll) { EXPECT_THAT(Chosen({"2", "3"}, {}), ElementsAre("2", "3")); }

TEST(GpusTest, NumbersCountWhatIsVisible) {
  EXPECT_THAT(Chosen({"2", "3"}, {"1", "0"}), ElementsAre("3", "2"));
  EXPECT_THAT(Chosen({"GPU-x", "GPU-y"}, {"1"}), ElementsAre("GPU-y"));
  EXPECT_THAT(WhyNot({"2", "3"}, {"2"}), HasSubstr("2,3, numbered 0 to 1"));
  EXPECT_THAT(WhyNot({}, {"0"}),
              HasSubstr("no GPU or NPU is visible here; see CUDA_VISIBLE_DEVICES"));
}

TEST(GpusTest, AnIdIsFoundHoweverTheListWritesIt) {
  EXPECT_THAT(Chosen({"0", "2"}, {"GPU-cccc-3"}), ElementsAre("2"));
  EXPECT_THAT(Chosen({"0", "2"}, {"GPU-cc"}), ElementsAre("2"));
  EXPECT_THAT(Chosen({"GPU-aaaa-1", "GPU-cccc"}, {"GPU-cccc-3"}), ElementsAre("GPU-cccc"));
  EXPECT_THAT(WhyNot({"0", "2"}, {"GPU-bbbb-2"}), HasSubstr("--gpus names GPU-bbbb-2"));
  EXPECT_THAT(WhyNot({"0", "1", "2", "3"}, {"GPU-dddd"}), HasSubstr("GPU-dddd"));
}

TEST(GpusTest, AGpuIsGivenOnceUnderWhateverName) {
  EXPECT_THAT(WhyNot({"0", "2"}, {"1", "GPU-cccc-3"}), HasSubstr("twice"));
}

TEST(GpusTest, MigDevicesAreTakenFromTheListOrFromAnUnlimitedMachine) {
  EXPECT_THAT(Chosen({"MIG-1", "MIG-2"}, {"MIG-2"}), ElementsAre("MIG-2"));
  EXPECT_THAT(Chosen({"0", "1", "2", "3"}, {"MIG-7"}), ElementsAre("MIG-7"));
  EXPECT_THAT(WhyNot({"0", "1"}, {"MIG-7"}), HasSubstr("MIG-7"));
}

TEST(GpusTest, TheNodeOfAnEntry) {
  EXPECT_EQ(*NodeOfGpu("2", kFour), 1);
  EXPECT_EQ(*NodeOfGpu("GPU-aaaa", kFour), 0);
  EXPECT_EQ(*NodeOfGpu("MIG-GPU-cccc-3/1/0", kFour), 1);
  EXPECT_TRUE(absl::IsNotFound(NodeOfGpu("MIG-7", kFour).status()));
  EXPECT_TRUE(absl::IsNotFound(NodeOfGpu("4", kFour).status()));
  EXPECT_EQ(*NodeOfGpu("MIG-7", {{"GPU-a", 1}, {"GPU-b", 1}}), 1);
  EXPECT_TRUE(absl::IsNotFound(NodeOfGpu("0", {{"", -1}}).status()));
}

}  // namespace
}  // namespace ddprun
