// SPDX-License-Identifier: Apache-2.0
// Which device and backend ranks take, over a real store and a driver that shows each of them other
// devices, as launchers do (tests/testing/fake_cuda_driver.c, which this program finds first).
#include "worker/library/distributed/device_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/integration/worker/ranks.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/distributed/world_store.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};

// Rank i sees the devices shown[i] of the fake driver, and takes of them what it would of real
// ones.
void InWorld(
    const std::vector<std::string>& shown,
    const std::function<void(const WorkerEnv&, const std::function<AgreedDevice()>&)>& body,
    BackendChoice backend = BackendChoice::kAuto) {
  const ReservedPort reserved;
  const int size = static_cast<int>(shown.size());
  RunProcesses(
      size, [&](int rank) { return EnvByHand(rank, size, reserved.port()); },
      [&](const WorkerEnv& env) {
        setenv("FAKE_CUDA_DEVICES", shown[static_cast<std::size_t>(env.rank)].c_str(), 1);
        const auto store = OpenWorldStore(env, kTimeout);
        const std::vector<std::string> uuids = DriverDevices();
        const RankDevice own =
            ChooseDevice(env, backend, DeviceChoice::kAuto,
                         {.shown = static_cast<int>(uuids.size()), .uuids = uuids});
        body(env, [&] {
          const AgreedDevice agreed = AgreeOnBackend(*store, env, backend, own);
          // Rank 0 serves the store: it leaves last. A TCPStore does not answer a set().
          if (env.rank != 0) store->set("leaves " + std::to_string(env.rank), "1");
          for (int rank = 1; env.rank == 0 && rank < env.world_size; ++rank)
            store->wait({"leaves " + std::to_string(rank)});
          return agreed;
        });
      });
}

TEST(DeviceAgreement, TheDriversDevicesAreNamedAsNvidiaSmiDoes) {
  if (!IsRankProcess()) setenv("FAKE_CUDA_DEVICES", "3,a1", 1);
  EXPECT_THAT(DriverDevices(), testing::ElementsAre("GPU-03000000-0000-0000-0000-000000000000",
                                                    "GPU-a1000000-0000-0000-0000-000000000000"));
  EXPECT_EQ(DriverDeviceCount(), 2);
}

// ddprun --gpus-per-worker 1, --virtual-local-rank, srun --gpus-per-task 1.
TEST(DeviceAgreement, RanksThatSeeOnlyTheirOwnGpuTakeNccl) {
  InWorld({"1", "2", "3"}, [](const WorkerEnv&, const auto& agree) {
    const AgreedDevice agreed = agree();
    EXPECT_TRUE(agreed.nccl);
    EXPECT_EQ(agreed.cuda, 0);
    EXPECT_EQ(agreed.note, "");
  });
}

TEST(DeviceAgreement, RanksThatSeeAllGpusTakeOneEach) {
  InWorld({"1,2", "1,2"}, [](const WorkerEnv& env, const auto& agree) {
    const AgreedDevice agreed = agree();
    EXPECT_TRUE(agreed.nccl);
    EXPECT_EQ(agreed.cuda, env.rank);
  });
}

TEST(DeviceAgreement, RanksOfOneGpuTakeGlooOnIt) {
  InWorld({"7", "7"}, [](const WorkerEnv&, const auto& agree) {
    const AgreedDevice agreed = agree();
    EXPECT_FALSE(agreed.nccl);
    EXPECT_EQ(agreed.cuda, 0);
    EXPECT_THAT(agreed.note, testing::StartsWith("2 ranks share 1 GPU (ranks 0 and 1 have the "));
  });
}

TEST(DeviceAgreement, ARankWithoutAGpuEndsAllWithTheSameSentence) {
  InWorld({"1", "2", ""}, [](const WorkerEnv&, const auto& agree) {
    EXPECT_THAT(agree, testing::ThrowsMessage<std::runtime_error>(testing::StartsWith(
                           "rank 2 would train on the CPU, rank 0 on a GPU; ")));
  });
}

TEST(DeviceAgreement, NcclForTwoRanksOfOneGpuEndsBothWithTheSameSentence) {
  InWorld(
      {"5,6", "6,5"},  // the same second device
      [](const WorkerEnv&, const auto& agree) {
        EXPECT_THAT(agree,
                    testing::ThrowsMessage<std::runtime_error>(testing::StartsWith(
                        "the backend nccl needs a CUDA device for each rank, but ranks 0 and "
                        "1 have the same; ")));
      },
      BackendChoice::kNccl);
}

TEST(DeviceAgreement, WithoutDevicesNothingIsLoadedAndOnlyHiddenOnesAreNotNoted) {
  InWorld({"", ""}, [](const WorkerEnv&, const auto& agree) {
    const CudaDevices found = FindCudaDevices(BackendChoice::kAuto, DeviceChoice::kAuto);
    EXPECT_EQ(found.shown, 0);
    EXPECT_THAT(found.problem, testing::StartsWith("an NVIDIA driver is installed, but shows no"));
    setenv("CUDA_VISIBLE_DEVICES", "", /*overwrite=*/1);
    EXPECT_EQ(FindCudaDevices(BackendChoice::kAuto, DeviceChoice::kAuto).problem, "");
    const AgreedDevice agreed = agree();
    EXPECT_FALSE(agreed.nccl);
    EXPECT_EQ(agreed.cuda, -1);
    EXPECT_EQ(agreed.note, "");
  });
}

// A program of a library's user that draws numbers before it joins, as many do.
TEST(DeviceNotes, ALibrarysProgramSaysWhyItTakesTheCpu) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // no thread of this process is in there
  const auto join = [](const char* variable, const char* value) {
    setenv(variable, value, /*overwrite=*/1);
    torch::manual_seed(1);
    World::Join({})->Shutdown();
    std::_Exit(0);
  };
  EXPECT_EXIT(join("FAKE_CUDA_DEVICES", "1"), testing::ExitedWithCode(0),
              "ddprun: the CPU is used, though the driver shows 1 CUDA device to rank 0: ");
  EXPECT_EXIT(join("FAKE_CUDA_ERROR", "802"), testing::ExitedWithCode(0),
              "ddprun: the CPU is used: the NVIDIA driver fails with error 802 .system not yet "
              "initialized.; see what nvidia-smi says");
}

}  // namespace
}  // namespace ddprun
