// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/fork_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
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

  std::shared_ptr<ForkServer> Start(const std::string& program,
                                    std::chrono::milliseconds import_timeout = kPreloadTimeout) {
    ForkServerPlan plan;
    plan.import_timeout = import_timeout;
    plan.modules = {"torch", "numpy"};
    plan.program = {.path = program, .argv = {program, "-u", "train.py"}, .is_python = true};
    plan.folder = folder_ + "/preload";
    sigemptyset(&plan.signal_mask);
    getrlimit(RLIMIT_NOFILE, &plan.file_limit);
    return ForkServer::Start(plan, [] {});
  }

  static std::vector<std::string> NotesOf(ForkServer& server) {
    EXPECT_FALSE(server.Fork({}, [] { return false; }).has_value());  // returns once it is known
    EXPECT_FALSE(server.IsLoading());
    return server.TakeNotes();
  }
  std::vector<std::string> NotesOf(const std::string& program) { return NotesOf(*Start(program)); }

  std::string Script(const std::string& text) {
    std::string path = folder_ + "/script";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
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
  const std::shared_ptr<ForkServer> server = Start(Script("exec sleep 600"));
  EXPECT_FALSE(server->Fork({}, [] { return true; }).has_value());
  EXPECT_TRUE(server->IsLoading());
  server->Stop();
  EXPECT_FALSE(server->Fork({}, [] { return false; }).has_value());
  EXPECT_THAT(server->TakeNotes(), IsEmpty());
}

TEST_F(ForkServerStartTest, WorkersStartWithoutOneThatImportsForTooLong) {
  const std::shared_ptr<ForkServer> server =
      Start(Script("exec sleep 600"), std::chrono::milliseconds(100));
  std::promise<void> started;
  Spawner spawner([&started] { started.set_value(); }, server);
  SpawnRequest request;
  request.path = "/bin/true";
  request.argv = {"true"};
  sigemptyset(&request.signal_mask);
  rlimit file_limit{};
  getrlimit(RLIMIT_NOFILE, &file_limit);
  spawner.Begin({request, request}, file_limit);
  started.get_future().wait();
  const std::optional<std::vector<Spawned>> workers = spawner.Take();
  ASSERT_TRUE(workers.has_value());
  for (const Spawned& worker : *workers) {
    EXPECT_FALSE(worker.outcome.has_value());
    EXPECT_EQ(waitpid(worker.pid, nullptr, 0), worker.pid);
  }
  EXPECT_THAT(server->TakeNotes(),
              ElementsAre("ddprun: the fork server of --preload torch,numpy has not imported its "
                          "modules in time (0.1 s); workers start without it"));
  server->BeginRound();
  EXPECT_FALSE(server->IsLoading());
}

TEST_F(ForkServerStartTest, OneThatWasKilledIsStartedAgainInTheNextRound) {
  const std::shared_ptr<ForkServer> server = Start(Script(absl::StrCat(
      "[ -e ", folder_, "/preload_2 ] || kill -9 $$; touch ", folder_, "/begun; exec sleep 600")));
  EXPECT_THAT(NotesOf(*server),
              ElementsAre(HasSubstr(" was killed by signal 9 (SIGKILL); workers start without it "
                                    "until another one is ready")));
  EXPECT_FALSE(server->Fork({}, [] { return false; }).has_value());
  server->BeginRound();
  EXPECT_TRUE(server->IsLoading());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!std::filesystem::exists(folder_ + "/begun")) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  server->Stop();
}

TEST_F(ForkServerStartTest, OneThatAlwaysFailsIsGivenUp) {
  const std::shared_ptr<ForkServer> server = Start("/nowhere/python3");
  for (int i = 1; i < kForkServerFailuresMax; ++i) {
    EXPECT_THAT(NotesOf(*server), ElementsAre(HasSubstr("; workers start without it until ")));
    server->BeginRound();
  }
  EXPECT_THAT(NotesOf(*server), ElementsAre(HasSubstr("; workers start without it from now on: it "
                                                      "has failed 3 times in a row")));
  server->BeginRound();
  EXPECT_THAT(NotesOf(*server), IsEmpty());
}

}  // namespace
}  // namespace ddprun
