// SPDX-License-Identifier: Apache-2.0
// ddprun on disks that hang or are full, and without descriptors: the run goes on or ends as if
// they were well, and people are told what is missing.
#include "tests/testing/faults.h"

#include <algorithm>
#include <csignal>

#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEverything[] = "open,read,write,fsync,rename,unlink,mkdir,stat,opendir hang";

class DdprunFaultsTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    faults_ = std::make_unique<Faults>(folder_);
    variables_.merge(faults_->variables());
    logs_ = folder_ + "/logs";
  }
  void TearDown() override {
    faults_.reset();
    DdprunTest::TearDown();
  }
  // In ddprun alone, and not in the workers.
  void Hang(const std::string& path) {
    faults_->Set({kEverything + (" path=" + path + " program=ddprun")});
  }
  // With a file as its stdout.
  std::unique_ptr<RunningProcess> LaunchInto(const std::string& file,
                                             std::vector<std::string> arguments) const {
    std::vector<std::string> argv = {"sh", "-c", "exec \"$@\" > " + file, "sh",
                                     BuildPath("bin/ddprun")};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return std::make_unique<RunningProcess>(std::move(argv), variables_);
  }
  // What a worker waits for.
  std::string Gate() const { return "while [ ! -e " + folder_ + "/go ]; do sleep 0.02; done; "; }
  void OpenGate() const { std::ofstream(folder_ + "/go"); }
  bool EventLogHas(const std::string& text) const {
    return Eventually([&] { return Content("events").find(text) != std::string::npos; });
  }

  std::unique_ptr<Faults> faults_;
  std::string logs_;
};

// ---- A program whose disk hangs

TEST_F(DdprunFaultsTest, ASignalEndsARunWhoseProgramIsOnAHungDisk) {
  faults_->Set({"exec hang program=ddprun"});
  auto run = Launch({"--rdzv-id", "r", "--shutdown-timeout", "1", "sleep", "100"});
  ASSERT_TRUE(faults_->WaitForHit("exec hang"));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 128 + SIGTERM) << run->err();
}

TEST_F(DdprunFaultsTest, ASlowStartOfTheProgramCostsNoHeartbeat) {
  faults_->Set({"exec delay=4000 program=ddprun"});
  const int port = FindFreePort("127.0.0.1").value_or(0);
  auto first = LaunchNode(0, port, "exit 0", {"--lease", "1"});
  auto second = LaunchNode(1, port, "exit 0", {"--lease", "1"});
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
}

// ---- A log folder that hangs

TEST_F(DdprunFaultsTest, AHungLogFolderDoesNotHoldUpAVerdict) {
  auto run = Launch({"--log-dir", logs_, "--rdzv-id", "r", "sh", "-c",
                     "echo begin; " + Gate() +
                         "echo '{\"message\": \"no data\"}' > $TORCHELASTIC_ERROR_FILE; exit 5"});
  ASSERT_TRUE(run->WaitForText("begin\n"));
  Hang(logs_);
  OpenGate();
  EXPECT_EQ(run->Wait(), 5) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("no data"));
}

TEST_F(DdprunFaultsTest, AHungLogFolderDoesNotHoldUpASignal) {
  auto run =
      Launch({"--log-dir", logs_, "--rdzv-id", "r", "sh", "-c", "echo begin; exec sleep 100"});
  ASSERT_TRUE(run->WaitForText("begin\n"));
  Hang(logs_);
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 128 + SIGTERM) << run->err();
}

TEST_F(DdprunFaultsTest, AHungLogFolderDoesNotHoldUpTheNextRound) {
  auto run =
      Launch({"--log-dir", logs_, "--rdzv-id", "r", "--max-restarts", "1", "sh", "-c",
              "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; echo begin; " + Gate() + "exit 5"});
  ASSERT_TRUE(run->WaitForText("begin\n"));
  Hang(logs_);
  OpenGate();
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("the disk of the log files has not answered"));
}

TEST_F(DdprunFaultsTest, AFailureRecordIsLeftBesideTheLogFiles) {
  auto run = Launch({"--log-dir", logs_, "--rdzv-id", "r", "sh", "-c",
                     "echo '{\"message\": \"no data\"}' > $TORCHELASTIC_ERROR_FILE; exit 5"});
  EXPECT_EQ(run->Wait(), 5);
  EXPECT_EQ(Content("logs/r/round_1/rank_0/error.json"), "{\"message\": \"no data\"}\n");
  EXPECT_EQ(Launch({"--log-dir", logs_, "--rdzv-id", "r", "true"})->Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(logs_ + "/r/round_1/rank_0/error.json"));
}

// ---- Other files

TEST_F(DdprunFaultsTest, AHungVerdictFileDoesNotKeepARunFromEnding) {
  Hang(folder_ + "/verdict");
  auto run = Launch({"--verdict-file", folder_ + "/verdict.json", "false"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), HasSubstr("verdict.json: its disk has not answered for 3 s"));
}

TEST_F(DdprunFaultsTest, AHungEventLogDoesNotKeepARunFromStarting) {
  Hang(folder_ + "/events");
  auto run = Launch({"--event-log", folder_ + "/events", "true"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), HasSubstr("its disk has not answered for 2 s; name another file"));
}

TEST_F(DdprunFaultsTest, AnEventLogOnAFullDiskIsSaid) {
  faults_->Set({"write ENOSPC program=ddprun path=" + folder_ + "/events"});
  auto run = Launch({"--event-log", folder_ + "/events", "true"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(), AllOf(HasSubstr("events cannot be written: No space left on device"),
                                HasSubstr(" events at its end")));
}

TEST_F(DdprunFaultsTest, ARemovedRunFolderIsMadeAgainForTheNextRound) {
  auto run = Launch({"--max-restarts", "1", "sh", "-c",
                     "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec test -S $DDPRUN_AGENT_SOCKET; "
                     "rm -r $(dirname $DDPRUN_AGENT_SOCKET); exit 5"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
}

// ---- Full disks, and the limit of `ulimit -f`, which is one

TEST_F(DdprunFaultsTest, ALogAtTheLimitOfFileSizesIsAFullDisk) {
  const std::vector<std::string> command = {BuildPath("bin/ddprun"),
                                            "--log-dir",
                                            logs_,
                                            "--redirects",
                                            "1",
                                            "sh",
                                            "-c",
                                            "head -c 20000 /dev/zero | tr '\\0' '\\n'; "
                                            "grep SigIgn /proc/self/status >&2"};
  RunningProcess run(WithLimit("--fsize=4096", command), variables_);
  EXPECT_EQ(run.Wait(), 0) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("File too large; the run goes on"));
  // The workers have the signal's default again, as torchrun's have.
  const std::string ignored = "SigIgn:\t";
  const std::size_t at = run.err().find(ignored);
  ASSERT_NE(at, std::string::npos) << run.err();
  const std::uint64_t mask = std::stoull(run.err().substr(at + ignored.size(), 16), nullptr, 16);
  EXPECT_EQ(mask & (std::uint64_t{1} << (SIGXFSZ - 1)), 0u) << run.err();
}

TEST_F(DdprunFaultsTest, AnOutputFileOnAFullDiskIsSaid) {
  faults_->Set({"write ENOSPC program=ddprun path=" + folder_ + "/out"});
  auto run = LaunchInto(folder_ + "/out", {"echo", "hello"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(),
              AllOf(HasSubstr("cannot write stdout: No space left on device; the run goes on"),
                    HasSubstr(" bytes of the output were not written to the output files: "
                              "the disk does not accept them")));
}

// ---- Waits at the end that a signal ends

// A disk so slow that writing all would take many minutes.
TEST_F(DdprunFaultsTest, ASignalEndsTheWaitForASlowOutputFile) {
  faults_->Set({"write delay=100 program=ddprun path=" + folder_ + "/out",
                "write short=16 program=ddprun path=" + folder_ + "/out"});
  auto run = LaunchInto(folder_ + "/out", {"--event-log", folder_ + "/events", "sh", "-c",
                                           "head -c 100000 /dev/zero | tr '\\0' '\\n'"});
  ASSERT_TRUE(EventLogHas("agent.ended"));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(), HasSubstr("bytes of the output were not written to the output files"));
}

TEST_F(DdprunFaultsTest, ASignalEndsTheWaitForSlowLogFiles) {
  faults_->Set({"write delay=1000 program=ddprun path=" + logs_});
  auto run = Launch({"--log-dir", logs_, "--redirects", "3", "--event-log", folder_ + "/events",
                     "--nproc-per-node", "60", "echo", "hello"});
  ASSERT_TRUE(EventLogHas("agent.ended"));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->err(), HasSubstr("were not written to the log files"));
}

// ---- Descriptors

TEST_F(DdprunFaultsTest, WhatCannotBeWatchedIsSaid) {
  // gRPC has an eventfd, too, and makes do without.
  for (const std::string rule :
       {"epoll_create EMFILE times=1", "eventfd EMFILE", "signalfd EMFILE times=1"}) {
    faults_->Set({rule + " program=ddprun"});
    auto run = Launch({"true"});
    EXPECT_EQ(run->Wait(), 1) << rule;
    EXPECT_THAT(run->err(), HasSubstr("Too many open files")) << rule;
  }
}

TEST_F(DdprunFaultsTest, AWorkerWhoseOutputCannotBeWatchedDoesNotHang) {
  // The first two pipes are the guards'.
  faults_->Set({"epoll_ctl ENOSPC program=ddprun path=pipe: from=3"});
  auto run = Launch({"sleep", "100"});
  EXPECT_EQ(run->Wait(), 128 + SIGKILL) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("rank 0 is killed because its output cannot be watched: "
                                    "No space left on device"));
}

// With whatever number of descriptors: ddprun starts, or says that there are too few.
TEST_F(DdprunFaultsTest, TooFewDescriptorsAreSaid) {
  for (int files = 6; files < 40; files += 3) {  // fewer are too few for the loader
    const std::string limit = "--nofile=" + std::to_string(files) + ":" + std::to_string(files);
    RunningProcess run(WithLimit(limit, {BuildPath("bin/ddprun"), "--rdzv-endpoint=127.0.0.1:0",
                                         "--nnodes=1", "--join-timeout=3", "true"}),
                       variables_);
    const int code = run.Wait();
    if (code == 0) continue;
    EXPECT_THAT(run.err(), HasSubstr("oo many open files")) << files << ": " << code;
    EXPECT_THAT(run.err(), AllOf(Not(HasSubstr("no free port")), Not(HasSubstr("No such file"))));
  }
}

}  // namespace
}  // namespace ddprun
