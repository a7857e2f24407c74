// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(DdprunTest, SuccessIsQuiet) {
  auto run = Launch({"--standalone", "--nproc-per-node", "2", "true"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(run->out(), "");
  EXPECT_EQ(run->err(), "");
}

TEST_F(DdprunTest, EveryWorkerKnowsItsPlace) {
  auto run = Launch({"--nproc-per-node", "2", "--master-addr", "localhost", "--max-restarts", "3",
                     "--rdzv-id", "job7", "--role", "trainer", "env"});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  for (const std::string rank : {"0", "1"}) {
    for (const std::string& variable :
         {"RANK=" + rank, "LOCAL_RANK=" + rank, std::string("WORLD_SIZE=2"),
          std::string("LOCAL_WORLD_SIZE=2"), std::string("GROUP_RANK=0"),
          std::string("GROUP_WORLD_SIZE=1"), std::string("ROLE_NAME=trainer"), "ROLE_RANK=" + rank,
          std::string("ROLE_WORLD_SIZE=2"), std::string("MASTER_ADDR=localhost"),
          std::string("TORCHELASTIC_RESTART_COUNT=0"), std::string("TORCHELASTIC_MAX_RESTARTS=3"),
          std::string("TORCHELASTIC_RUN_ID=job7"), std::string("TORCHELASTIC_USE_AGENT_STORE=True"),
          std::string("TORCH_NCCL_ASYNC_ERROR_HANDLING=1"), std::string("DDPRUN_ROUND=1")}) {
      EXPECT_THAT("\n" + run->out(), HasSubstr("\n[" + rank + "] " + variable + "\n"));
    }
    for (const char* variable :
         {"MASTER_PORT=", "TORCHELASTIC_ERROR_FILE=", "DDPRUN_AGENT_SOCKET=", "OMP_NUM_THREADS="}) {
      EXPECT_THAT(run->out(), HasSubstr("[" + rank + "] " + variable));
    }
  }
  EXPECT_THAT(run->out(), Not(HasSubstr("DDPRUN_CONSOLE_TERMINAL")));
  EXPECT_THAT(run->out(), Not(HasSubstr("DDPRUN_ONE_ROUND")));
}

TEST_F(DdprunTest, WorkersKnowThatNoOtherRoundCanCome) {
  auto fixed = Launch({"env"});
  EXPECT_EQ(fixed->Wait(), 0);
  EXPECT_THAT("\n" + fixed->out(), HasSubstr("\n[0] DDPRUN_ONE_ROUND=1\n"));
}

TEST_F(DdprunTest, ExitCodes) {
  EXPECT_EQ(Launch({"sh", "-c", "exit 7"})->Wait(), 7);
  EXPECT_EQ(Launch({"sh", "-c", "kill -9 $$"})->Wait(), 137);
  EXPECT_EQ(Launch({"sh", "-c", "kill -TERM $$"})->Wait(), 143);
}

// The others end by SIGTERM: nothing else would end them before the test's deadline.
TEST_F(DdprunTest, TheFirstFailingWorkersCodeWinsAndTheOthersAreStoppedAtOnce) {
  auto run = Launch({"--nproc-per-node", "3", "--term-timeout", "3600", "sh", "-c",
                     "if [ $RANK = 1 ]; then until [ -e " + folder_ + "/0 ] && [ -e " + folder_ +
                         "/2 ]; do sleep 0.01; done; echo last words; exit 5; fi; "
                         "trap 'echo stopped; exit 9' TERM; touch " +
                         folder_ + "/$RANK; sleep 1000 & wait"});
  EXPECT_EQ(run->Wait(), 5);
  EXPECT_THAT(run->out(), HasSubstr("[0] stopped\n"));
  EXPECT_THAT(run->out(), HasSubstr("[2] stopped\n"));
  EXPECT_THAT(run->err(), HasSubstr("rank 1 (local rank 1 on host"));
  EXPECT_THAT(run->err(), HasSubstr("exited with code 5"));
  EXPECT_THAT(run->err(), HasSubstr("  last lines of rank 1:\n    last words\n  the others:\n    "
                                    "ranks 0, 2 were stopped by ddprun\n  exit code: 5\n"));
}

// It never ends by itself, and the default grace is as long as the test's deadline.
TEST_F(DdprunTest, AWorkerThatIgnoresSigtermIsKilledAfterTheGrace) {
  auto run = Launch({"--nproc-per-node", "2", "--term-timeout", "0.2", "sh", "-c",
                     "[ $RANK = 0 ] && { while [ ! -e " + folder_ +
                         "/ready ]; do :; done; exit 3; }; trap '' TERM; echo pid=$$; "
                         "touch " +
                         folder_ + "/ready; while :; do sleep 1; done"});
  ASSERT_TRUE(run->WaitForText("pid="));
  const ProcessWatch worker(NumberAfter("pid=", run->out()));
  EXPECT_EQ(run->Wait(), 3);
  EXPECT_TRUE(worker.WaitForEnd());
}

TEST_F(DdprunTest, WhatAWorkerRecordedIsInTheVerdict) {
  auto run =
      Launch({"sh", "-c",
              "echo '{\"message\": \"no data in /data\"}' > $TORCHELASTIC_ERROR_FILE; exit 1"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), HasSubstr("  what it said:\n    no data in /data\n"));
}

TEST_F(DdprunTest, WhatAWorkerPrintedLastAndRecordedIsShownOnce) {
  const std::string script =
      "echo '{\"message\": \"no data\"}' > $TORCHELASTIC_ERROR_FILE; echo oh: no data >&2; ";
  auto run = Launch({"sh", "-c", script + "exit 1"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), StartsWith("[0] oh: no data\nddprun: run failed"));
  EXPECT_THAT(run->err(), Not(HasSubstr("what it said")));
  // What came after it may have pushed it out of sight.
  run = Launch({"sh", "-c", script + "echo more >&2; exit 1"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), HasSubstr("  what it said:\n    no data\n"));
}

// This node hosts the service: its session has no wire, which would clean what another node sends.
TEST_F(DdprunTest, ControlCharactersOfAWorkerAreRelayedInItsOwnLinesAlone) {
  std::ofstream(folder_ + "/record") << R"({"message": {"message": "gone\u001b[2J\nfor good",
      "extraInfo": {"py_callstack": "Traceback\u001b]0;title\u0007\nError: \u001b[31mgone"}}})";
  auto run = Launch({"--verdict-file", folder_ + "/verdict", "sh", "-c",
                     "printf 'last \\033[31mred\\033]0;title\\007\\n' >&2; cp " + folder_ +
                         "/record $TORCHELASTIC_ERROR_FILE; exit 1"});
  EXPECT_EQ(run->Wait(), 1);
  const std::size_t end = run->err().find("ddprun: run failed");
  ASSERT_NE(end, std::string::npos) << run->err();
  EXPECT_EQ(run->err().substr(0, end), "[0] last \x1b[31mred\x1b]0;title\x07\n");
  const std::string verdict = run->err().substr(end);
  EXPECT_EQ(verdict.find_first_of("\x1b\x07"), std::string::npos) << verdict;
  EXPECT_THAT(verdict, HasSubstr("  what it said:\n    Traceback?]0;title?\n    Error: gone\n"));
  EXPECT_THAT(verdict, HasSubstr("  last lines of rank 0:\n    last red?]0;title?\n"));
  EXPECT_THAT(Content("verdict"), HasSubstr(R"("message":"gone\nfor good")"));
  EXPECT_THAT(Content("verdict"), Not(HasSubstr("u001b")));
}

TEST_F(DdprunTest, RestartsUntilItWorks) {
  const std::string count = folder_ + "/count";
  auto run = Launch(
      {"--max-restarts", "2", "--nproc-per-node", "2", "sh", "-c",
       "echo round $DDPRUN_ROUND restart $TORCHELASTIC_RESTART_COUNT; [ $RANK = 1 ] && sleep 100; "
       "echo x >> " +
           count + "; [ $(wc -l < " + count + ") -gt 2 ] || exit 6"});
  ASSERT_TRUE(run->WaitForText("round 3 restart 2", 2)) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("restart 1 of 2 as round 2: rank 0"));
  EXPECT_THAT(run->err(), HasSubstr("restart 2 of 2 as round 3: rank 0"));
  run->Signal(SIGTERM);  // rank 1 sleeps
  EXPECT_EQ(run->Wait(), 143);
}

TEST_F(DdprunTest, RestartsAreCountedAndThenTheRunFails) {
  auto run = Launch({"--max-restarts", "2", "sh", "-c", "exit 6"});
  EXPECT_EQ(run->Wait(), 6);
  EXPECT_THAT(run->err(), HasSubstr("round 3\n  restarts: 2 of 2 used\n"));
}

TEST_F(DdprunTest, ArgumentsArriveUntouchedButForTheLocalRank) {
  auto run = Launch(
      {"--nproc-per-node=2", "--", "printf", "<%s>", "$$", "${local_rank}", "--nnodes", "a b"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->out(), HasSubstr("[1] <$$><1><--nnodes><a b>\n"));
}

TEST_F(DdprunTest, APythonScriptIsRunByPython) {
  std::ofstream(folder_ + "/job.py")
      << "import os, sys\nprint('rank', os.environ['RANK'], *sys.argv[1:])\n";
  auto run = Launch({"--nproc-per-node", "2", folder_ + "/job.py", "--lr", "1"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->out(), HasSubstr("[1] rank 1 --lr 1\n"));
}

TEST_F(DdprunTest, LogFolders) {
  auto run = Launch(
      {"--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", folder_ + "/logs", "--rdzv-id",
       "job7", "sh", "-c",
       "echo out $RANK; echo err $RANK >&2; [ $DDPRUN_ROUND = 2 ] || [ $RANK = 1 ] || exit 1; "
       "[ $DDPRUN_ROUND = 2 ] || sleep 100"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_EQ(Content("logs/job7/round_1/rank_0/stdout.log"), "out 0\n");
  EXPECT_EQ(Content("logs/job7/round_2/rank_1/stdout.log"), "out 1\n");
  EXPECT_EQ(Content("logs/job7/round_2/rank_1/stderr.log"), "err 1\n");
}

TEST_F(DdprunTest, TheChosenMasterPortIsTheWorkers) {
  const OwnedFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  ASSERT_EQ(listen(listener.get(), 1), 0);
  auto taken = Launch({"--master-port", port, "true"});
  EXPECT_EQ(taken->Wait(), 1);
  EXPECT_EQ(taken->err(), "ddprun: port " + port +
                              " at 127.0.0.1 is in use; name another one with --master-port, or "
                              "leave it out\n");
}

// ---- What a person gets wrong

TEST_F(DdprunTest, WrongCommandLines) {
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    std::string sentence;
  };
  std::ofstream(folder_ + "/plain") << "x";
  const Case cases[] = {
      {{"--nodes", "2", "true"}, 2, "unknown flag --nodes"},
      {{"--nnodes", "two", "true"}, 2, "--nnodes 'two' is not"},
      {{"--nnodes", "2", "true"}, 2, "--master-addr"},
      {{}, 2, "no program is named"},
      {{"no-such-program"}, 127, "there is no program 'no-such-program'"},
      {{folder_ + "/no.py"}, 127, "there is no Python script"},
      {{folder_ + "/plain"}, 126, "is not executable"},
      {{"--log-dir", "/dev/null/logs", "true"}, 2, "cannot make the log folder /dev/null/logs"},
  };
  for (const Case& one : cases) {
    auto run = Launch(one.arguments);
    EXPECT_EQ(run->Wait(), one.exit_code) << one.sentence << run->err();
    EXPECT_EQ(run->out(), "");
    EXPECT_THAT(run->err(), ::testing::StartsWith("ddprun: "));
    EXPECT_THAT(run->err(), HasSubstr(one.sentence));
  }
}

#ifndef __SANITIZE_THREAD__  // which takes an exec() that fails after a vfork() for the thread's
                             // own
TEST_F(DdprunTest, AFileThatIsNoProgramIsNamed) {
  std::ofstream(folder_ + "/script") << "echo no first line\n";
  std::filesystem::permissions(folder_ + "/script", std::filesystem::perms::owner_all);
  auto run = Launch({"--nproc-per-node", "2", folder_ + "/script"});
  EXPECT_EQ(run->Wait(), 126);
  EXPECT_THAT(run->err(), HasSubstr("Exec format error"));
}
#endif

}  // namespace
}  // namespace ddprun
