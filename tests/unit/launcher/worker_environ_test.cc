// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_environ.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

WorkerEnv TwoWorkers() {
  WorkerEnv env;
  env.rank = 1;
  env.world_size = env.local_world_size = 2;
  env.master_addr = "127.0.0.1";
  env.master_port = 1;
  return env;
}

TEST(WorkerEnvironTest, InheritsAndReplaces) {
  const auto environment = WorkerEnviron({"HOME=/root", "RANK=9", "RANKS=3"}, TwoWorkers(), {}, {});
  EXPECT_THAT(environment, Contains("HOME=/root"));
  EXPECT_THAT(environment, Contains("RANKS=3"));
  EXPECT_THAT(environment, Contains("RANK=1"));
  EXPECT_THAT(environment, Not(Contains("RANK=9")));
}

TEST(WorkerEnvironTest, AnOuterLaunchersWordsAreLeftOut) {
  const auto environment = WorkerEnviron(
      {"DDPRUN_AGENT_SOCKET=/old", "TORCHELASTIC_ERROR_FILE=/old"}, TwoWorkers(), {}, {});
  EXPECT_THAT(environment, Not(Contains(StartsWith("DDPRUN_AGENT_SOCKET"))));
  EXPECT_THAT(environment, Not(Contains(StartsWith("TORCHELASTIC_ERROR_FILE"))));
}

TEST(WorkerEnvironTest, TheRunsSecretIsLeftOut) {
  EXPECT_THAT(WorkerEnviron({"DDPRUN_TOKEN=abc", "DDPRUN_TOKENS=3"}, TwoWorkers(), {}, {}),
              ::testing::AllOf(Not(Contains("DDPRUN_TOKEN=abc")), Contains("DDPRUN_TOKENS=3")));
}

TEST(WorkerEnvironTest, ThreadsAreSharedUnlessAPersonSaysOtherwise) {
  EXPECT_THAT(WorkerEnviron({}, TwoWorkers(), {.threads = 4}, {}), Contains("OMP_NUM_THREADS=4"));
  const auto chosen = WorkerEnviron({"OMP_NUM_THREADS=3"}, TwoWorkers(), {.threads = 4}, {});
  EXPECT_THAT(chosen, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(chosen, Not(Contains("OMP_NUM_THREADS=4")));
  EXPECT_THAT(WorkerEnviron({}, TwoWorkers(), {.threads = 0}, {}),
              Not(Contains(StartsWith("OMP_NUM_THREADS"))));
}

TEST(WorkerEnvironTest, GpusOfItsOwnReplaceThoseOfTheParent) {
  const auto own =
      WorkerEnviron({"CUDA_VISIBLE_DEVICES=4,5"}, TwoWorkers(), {.visible_devices = "5"}, {});
  EXPECT_THAT(own, Contains("CUDA_VISIBLE_DEVICES=5"));
  EXPECT_THAT(own, Not(Contains("CUDA_VISIBLE_DEVICES=4,5")));
  EXPECT_THAT(WorkerEnviron({"CUDA_VISIBLE_DEVICES=4,5"}, TwoWorkers(), {}, {}),
              Contains("CUDA_VISIBLE_DEVICES=4,5"));
}

TEST(WorkerEnvironTest, AVirtualLocalRankIsSeenByTheProgramOnly) {
  WorkerEnv env = TwoWorkers();
  env.local_rank = 1;
  const auto seen = WorkerEnviron({}, env, {.local_rank_is_zero = true}, {});
  EXPECT_THAT(seen, Contains("LOCAL_RANK=0"));
  EXPECT_THAT(seen, Contains("RANK=1"));
  EXPECT_THAT(WorkerEnviron({}, env, {}, {}), Contains("LOCAL_RANK=1"));
}

TEST(WorkerEnvironTest, TheNetworksVariablesAreAdded) {
  EXPECT_THAT(WorkerEnviron({}, TwoWorkers(), {}, {"GLOO_SOCKET_IFNAME=eth0"}),
              Contains("GLOO_SOCKET_IFNAME=eth0"));
}

TEST(WorkerEnvironTest, TheRoundsTraceReplacesThatOfTheParent) {
  const auto environment = WorkerEnviron({"TRACEPARENT=of-all", "TRACESTATE=x"}, TwoWorkers(), {},
                                         {"TRACEPARENT=of-the-round"});
  EXPECT_THAT(environment, Contains("TRACEPARENT=of-the-round"));
  EXPECT_THAT(environment, Contains("TRACESTATE=x"));
  EXPECT_THAT(environment, Not(Contains("TRACEPARENT=of-all")));
}

TEST(WorkerEnvironTest, NcclErrorsEndTheWorkerUnlessAPersonSaysOtherwise) {
  EXPECT_THAT(WorkerEnviron({}, TwoWorkers(), {}, {}),
              Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=1"));
  EXPECT_THAT(WorkerEnviron({"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"}, TwoWorkers(), {}, {}),
              Not(Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=1")));
}

}  // namespace
}  // namespace ddprun
