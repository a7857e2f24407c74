// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/fork_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "launcher/placement/worker_environ.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::string_literals;

TEST(ForkRequestTest, HasWhatTheWorkerNeedsAndKeepsEachByte) {
  SpawnRequest request;
  request.argv = {"python3", "-u", "train.py", "", "a\nb\xff"};
  request.environ = {"RANK=0", "EMPTY=", "A=b=c"};
  EXPECT_EQ(EncodeForkRequest(request, std::nullopt),
            "apython3\0a-u\0atrain.py\0a\0aa\nb\xff\0eRANK=0\0eEMPTY=\0eA=b=c\0"s);
  request.argv = {"x"};
  request.environ = {};
  request.cpus = {0, 3, 64};
  EXPECT_EQ(EncodeForkRequest(request, MemoryPolicy{238, 1, 65, {2}}),
            "ax\0c0,3,64\0m238,1,65,2\0"s);
}

TEST(ForkRequestTest, AWorkerWithAnotherNumberOfThreadsIsNotForked) {
  EXPECT_TRUE(ReadsTheSame({"A=1"}, {"RANK=0", "A=2"}));
  EXPECT_TRUE(ReadsTheSame({"OMP_NUM_THREADS=2"}, {"RANK=0", "OMP_NUM_THREADS=2"}));
  EXPECT_FALSE(ReadsTheSame({"OMP_NUM_THREADS=2"}, {"OMP_NUM_THREADS=3"}));
  EXPECT_FALSE(ReadsTheSame({}, {"OMP_NUM_THREADS=1"}));
}

TEST(ForkServerTest, FindsNothingOfRankAndRound) {
  const std::vector<std::string> inherited = {"HOME=/root", "RANK=7", "MASTER_ADDR=elsewhere",
                                              "DDPRUN_TOKEN=secret"};
  const std::vector<std::string> common = CommonEnviron(inherited, Place{.threads = 2});
  EXPECT_THAT(common,
              ElementsAre("HOME=/root", "OMP_NUM_THREADS=2", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"));
}

// Without a Python: the sentences for programs that are no fork server.
class ForkServerStartTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<ForkServer> Start(const std::string& program) {
    ForkServerPlan plan;
    plan.modules = {"torch", "numpy"};
    plan.program = {.path = program, .argv = {program, "-u", "train.py"}, .is_python = true};
    plan.folder = folder_ + "/preload";
    sigemptyset(&plan.signal_mask);
    getrlimit(RLIMIT_NOFILE, &plan.file_limit);
    return ForkServer::Start(plan, [] {});
  }

  std::vector<std::string> NotesOf(const std::string& program) {
    const std::shared_ptr<ForkServer> server = Start(program);
    EXPECT_FALSE(server->Fork({}, [] { return false; }).has_value());  // returns once it is known
    EXPECT_FALSE(server->IsLoading());
    return server->TakeNotes();
  }

  std::string folder_ = ::testing::TempDir() + "/fork_server_XXXXXX";
};

TEST_F(ForkServerStartTest, APythonThatDoesNotImportTheServerIsNotGivenTheProgram) {
  EXPECT_THAT(NotesOf("/bin/true"),
              ElementsAre("ddprun: the fork server of --preload torch,numpy ended with exit code "
                          "0: /bin/true imports no sitecustomize from PYTHONPATH, or a module has "
                          "ended it; workers start without it"));
}

TEST_F(ForkServerStartTest, AnEndBeforeItIsReadyIsReported) {
  EXPECT_THAT(NotesOf("/bin/false"), ElementsAre(HasSubstr(" ended with exit code 1; ")));
}

TEST_F(ForkServerStartTest, AProgramThatIsNotThereIsReported) {
  EXPECT_THAT(NotesOf("/nowhere/python3"),
              ElementsAre(HasSubstr(" cannot start /nowhere/python3: No such file")));
}

TEST_F(ForkServerStartTest, AWaitForItCanBeCancelled) {
  const std::string never_ready = folder_ + "/never_ready";
  std::ofstream(never_ready) << "#!/bin/sh\nexec sleep 600\n";
  std::filesystem::permissions(never_ready, std::filesystem::perms::owner_all);
  const std::shared_ptr<ForkServer> server = Start(never_ready);
  EXPECT_FALSE(server->Fork({}, [] { return true; }).has_value());
  EXPECT_TRUE(server->IsLoading());
  server->Stop();
  EXPECT_FALSE(server->Fork({}, [] { return false; }).has_value());
  EXPECT_THAT(server->TakeNotes(), IsEmpty());
}

}  // namespace
}  // namespace ddprun
