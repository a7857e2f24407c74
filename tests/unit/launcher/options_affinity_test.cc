// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AffinityOptions Read(const Values& values) {
  Reader reader(values);
  Options options;
  reader.Read(kAffinityFlags, options);
  EXPECT_TRUE(reader.status().ok()) << reader.status();
  return options.affinity;
}

std::string Error(const std::string& flag, const std::string& text) {
  const Values values = {{flag, {text, flag}}};
  Reader reader(values);
  Options options;
  reader.Read(kAffinityFlags, options);
  EXPECT_FALSE(reader.status().ok()) << flag << " " << text;
  return std::string(reader.status().message());
}

TEST(OptionsAffinityTest, NothingIsBoundOrChosenUnlessAskedFor) {
  const AffinityOptions options = Read({});
  EXPECT_EQ(options.numa_binding, NumaBinding::kNone);
  EXPECT_TRUE(options.gpus.empty());
  EXPECT_EQ(options.gpus_per_worker, 0);
  EXPECT_FALSE(options.virtual_local_rank);
}

TEST(OptionsAffinityTest, TorchrunsModes) {
  const auto mode = [](const char* name) {
    return Read({{"--numa-binding", {name, "--numa-binding"}}}).numa_binding;
  };
  EXPECT_EQ(mode("node"), NumaBinding::kNode);
  EXPECT_EQ(mode("socket"), NumaBinding::kSocket);
  EXPECT_EQ(mode("exclusive"), NumaBinding::kExclusive);
  EXPECT_EQ(mode("core-complex"), NumaBinding::kCoreComplex);
  EXPECT_THAT(Error("--numa-binding", "none"), HasSubstr("node, socket, exclusive or"));
}

TEST(OptionsAffinityTest, ListsOfGpus) {
  const auto gpus = [](const char* text) { return Read({{"--gpus", {text, "--gpus"}}}).gpus; };
  EXPECT_THAT(gpus("0,2-3"), ElementsAre("0", "2", "3"));
  EXPECT_THAT(gpus("GPU-1a, MIG-2b,7"), ElementsAre("GPU-1a", "MIG-2b", "7"));
  for (const char* text : {"", "a", "0,,1", "-1", "3-1", "99999"}) {
    EXPECT_THAT(Error("--gpus", text), HasSubstr("is not a list of GPUs")) << text;
  }
  EXPECT_THAT(Error("--gpus", "0-2,1"), HasSubstr("names 1 twice"));
  std::string many = "0-1023";
  for (int i = 0; i < 100'000; ++i) many += ",0-1023";
  EXPECT_EQ(Error("--gpus", many), "--gpus names more than 1024 GPUs; name each once");
}

TEST(OptionsAffinityTest, GpusOfAWorker) {
  EXPECT_EQ(Read({{"--gpus-per-worker", {"2", "-"}}}).gpus_per_worker, 2);
  EXPECT_THAT(Error("--gpus-per-worker", "0"), HasSubstr("from 1 to"));
  EXPECT_TRUE(Read({{"--virtual-local-rank", {"1", "-"}}}).virtual_local_rank);
}

}  // namespace
}  // namespace ddprun
