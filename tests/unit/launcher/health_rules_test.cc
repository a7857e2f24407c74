// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/health_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "launcher/options/health_options.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kNow = 1'790'000'000;

HealthFacts Sound() {
  HealthFacts facts;
  for (const int index : {0, 1}) {
    facts.nvml.gpus.push_back({.index = index,
                               .uuid = index == 0 ? "GPU-a" : "GPU-b",
                               .pci = index == 0 ? "0000:3b:00" : "0000:86:00",
                               .memory_total = 80 * kGiB,
                               .memory_used = kGiB,
                               .ecc_errors = 0});
  }
  facts.gpus = {0, 1};
  facts.gpu_devices = 2;
  facts.folders = {{.path = "/tmp",
                    .bytes = 100 * kGiB,
                    .bytes_free = 50 * kGiB,
                    .files = 1'000'000,
                    .files_free = 900'000}};
  facts.unix_seconds = kNow;
  facts.interfaces = {{.name = "lo", .up = true, .loopback = true},
                      {.name = "eth0", .up = true},
                      {.name = "eth1", .up = false}};
  facts.ports = {{.device = "mlx5_0", .port = "1", .state = "ACTIVE", .physical = "LinkUp"},
                 {.device = "mlx5_1", .port = "1", .state = "DOWN", .physical = "Disabled"}};
  return facts;
}

struct Case {
  const char* name;
  std::function<void(HealthFacts&)> change;
  const char* check;  // that fails; empty: none
  std::vector<const char*> words;
};

class HealthRule : public testing::TestWithParam<Case> {};

TEST_P(HealthRule, FindsThatAlone) {
  HealthFacts facts = Sound();
  GetParam().change(facts);
  for (const char* check : kHealthCheckNames) {
    const absl::Status status = JudgeHealth(check, facts);
    EXPECT_EQ(status.ok(), check != absl::string_view(GetParam().check)) << check << status;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    for (const char* words : GetParam().words) EXPECT_THAT(status.message(), HasSubstr(words));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, HealthRule,
    testing::Values(
        Case{"Sound", [](HealthFacts&) {}, "", {}},
        Case{"NoGpu",
             [](HealthFacts& facts) {
               facts.nvml = {};
               facts.gpus.clear();
             },
             "",
             {}},
        Case{"Driver",
             [](HealthFacts& facts) { facts.nvml = {.error = "Driver/library mismatch"}; },
             "gpu",
             {"NVML: Driver/library mismatch", "nvidia-smi"}},
        Case{"Gone", [](HealthFacts& facts) { facts.gpu_devices = 3; }, "gpu", {"2 of the 3 GPUs"}},
        Case{"Lost",
             [](HealthFacts& facts) { facts.nvml.gpus[1].error = "GPU is lost"; },
             "gpu",
             {"GPU 1 (GPU-b)", "GPU is lost", "--gpu-reset -i 1"}},
        Case{"Ecc",
             [](HealthFacts& facts) { facts.nvml.gpus[1].ecc_errors = 3; },
             "gpu",
             {"GPU 1 (GPU-b) has 3 uncorrectable ECC errors", "--gpu-reset -i 1"}},
        Case{"EccOfAnother",
             [](HealthFacts& facts) {
               facts.nvml.gpus[1].ecc_errors = 3;
               facts.gpus = {0};
             },
             "",
             {}},
        Case{"Pending",
             [](HealthFacts& facts) { facts.nvml.gpus[0].repair_pending = true; },
             "gpu",
             {"GPU 0", "next reset"}},
        Case{"NotRepaired",
             [](HealthFacts& facts) { facts.nvml.gpus[0].repair_failed = true; },
             "gpu",
             {"GPU 0", "replace it"}},
        Case{"Full",
             [](HealthFacts& facts) { facts.nvml.gpus[1].memory_used = 60 * kGiB; },
             "gpu",
             {"GPU 1 (GPU-b) has 60 GiB of 80 GiB in use although no worker runs"}},
        Case{"FullButNotOurs",
             [](HealthFacts& facts) {
               facts.nvml.gpus[1].memory_used = 60 * kGiB;
               facts.gpus_in_use = 1;
             },
             "",
             {}},
        Case{"Xid",
             [](HealthFacts& facts) {
               facts.xids = {{.pci = "0000:86:00", .number = 79, .seconds_ago = 125}};
             },
             "gpu",
             {"GPU 1 (GPU-b) had Xid 79 2 minutes ago"}},
        Case{"XidOfAProgram",
             [](HealthFacts& facts) { facts.xids = {{.pci = "0000:86:00", .number = 31}}; },
             "",
             {}},
        Case{"XidOfLongAgo",
             [](HealthFacts& facts) {
               facts.xids = {{.pci = "0000:86:00", .number = 79, .seconds_ago = 3601}};
             },
             "",
             {}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Others, HealthRule,
    testing::Values(
        Case{"DiskFull",
             [](HealthFacts& facts) { facts.folders[0].bytes_free = kGiB / 2; },
             "disk",
             {"/tmp has 512 MiB left of 100 GiB", "make room"}},
        Case{"SmallDisk",
             [](HealthFacts& facts) {
               facts.folders[0].bytes = kGiB;
               facts.folders[0].bytes_free = kGiB / 2;
             },
             "",
             {}},
        Case{"NoFiles",
             [](HealthFacts& facts) { facts.folders[0].files_free = 9; },
             "disk",
             {"9 more files"}},
        Case{"FilesAreNotCounted",
             [](HealthFacts& facts) { facts.folders[0].files = facts.folders[0].files_free = 0; },
             "",
             {}},
        Case{"ReadOnly",
             [](HealthFacts& facts) { facts.folders[0].read_only = true; },
             "disk",
             {"/tmp is read-only"}},
        Case{"NoFolder",
             [](HealthFacts& facts) { facts.folders[0].error = "Stale file handle"; },
             "disk",
             {"/tmp cannot be used: Stale file handle"}},
        Case{"Clock", [](HealthFacts& facts) { facts.unix_seconds = 86'400; }, "clock", {"1970"}},
        Case{"Interface",
             [](HealthFacts& facts) { facts.nccl_socket_ifname = "=eth1"; },
             "network",
             {"NCCL_SOCKET_IFNAME==eth1"}},
        Case{"OneInterfaceIsEnough",
             [](HealthFacts& facts) { facts.nccl_socket_ifname = "eth"; },
             "",
             {}},
        Case{"NamedPort",
             [](HealthFacts& facts) { facts.nccl_ib_hca = "mlx5_0,mlx5_1:1"; },
             "network",
             {"mlx5_1 port 1 is DOWN (Disabled)", "NCCL_IB_HCA=mlx5_0,mlx5_1:1"}},
        Case{"AnotherPortIsNamed",
             [](HealthFacts& facts) { facts.nccl_ib_hca = "mlx5_0,mlx5_1:2"; },
             "",
             {}},
        Case{"NoSubnetManager",
             [](HealthFacts& facts) { facts.ports[0].state = "INIT"; },
             "network",
             {"mlx5_0 port 1 is INIT (LinkUp)"}},
        Case{"ExceptThatPort",
             [](HealthFacts& facts) {
               facts.ports[0].state = "INIT";
               facts.nccl_ib_hca = "^mlx5_0";
             },
             "",
             {}},
        Case{"WithoutIb",
             [](HealthFacts& facts) {
               facts.ports[0].state = "INIT";
               facts.without_ib = true;
             },
             "",
             {}}),
    [](const auto& test) { return test.param.name; });

TEST(XidsIn, ReadsTheKernelsRecords) {
  const char* records =
      "6,338,4000000,-;NVRM: Xid (PCI:0000:3B:00): 48, pid=1, an earlier driver's\n"
      "6,339,5000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n"
      "4,340,6000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off\n"
      " SUBSYSTEM=pci\n"
      "12,341,6500000,-;NVRM: Xid (PCI:0000:3b:00): 95, a program wrote this\n"
      "4,342,7000000,-;NVRM: Xid (PCI:0000:3b:00): what\n"
      "4,x";
  EXPECT_EQ(XidsIn(records, 66'000'000),
            (std::vector<Xid>{{.pci = "0000:3b:00", .number = 79, .seconds_ago = 60}}));
}

TEST(HealthOptions, BuiltInIsACommandOfThisProgram) {
  Options options;
  EXPECT_EQ(HealthCommandLine(options, "/a b/ddprun", 2), "");
  options.health.command = "true && ./mine";
  EXPECT_EQ(HealthCommandLine(options, "/a b/ddprun", 2), "true && ./mine");
  options.health.command = "builtin";
  EXPECT_EQ(HealthCommandLine(options, "/a b/ddprun", 2), "exec '/a b/ddprun' health --workers 2 ");
  options.health.command = "builtin:gpu,disk";
  options.affinity.gpus = {"2", "3"};
  options.logs.log_dir = "/logs of me";
  EXPECT_EQ(HealthCommandLine(options, "/ddprun", 1),
            "exec /ddprun health --workers 1 --gpus 2,3 --folder '/logs of me' gpu,disk");
  EXPECT_TRUE(CheckHealthOptions(options.health).ok());
  EXPECT_THAT(CheckHealthOptions({.command = "builtin:gpu,dish"}).message(),
              AllOf(HasSubstr("--health-check=builtin:gpu,dish"), HasSubstr("'dish' is no health"),
                    HasSubstr("gpu, disk, clock, network")));
}

TEST(HealthOptions, AreReadAsTheyAreWritten) {
  const auto parsed = ParseHealthRequest(
      {"--workers", "2", "--gpus", "2,3", "--folder", "/a", "--folder", "/b", "gpu,disk"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const HealthRequest& request = std::get<HealthRequest>(*parsed);
  EXPECT_EQ(request.checks, (std::vector<std::string>{"gpu", "disk"}));
  EXPECT_EQ(request.workers, 2);
  EXPECT_EQ(request.gpus, (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(request.folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(std::get<HealthRequest>(*ParseHealthRequest({})).checks.size(), 4u);
  EXPECT_FALSE(ParseHealthRequest({"gpus"}).ok());
}

}  // namespace
}  // namespace ddprun
