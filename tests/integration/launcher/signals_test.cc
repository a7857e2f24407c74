// SPDX-License-Identifier: Apache-2.0
// Signals that a person or a scheduler sends to ddprun, and a terminal's.
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <thread>

#include "launcher/base/limits.h"
#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Lives until it is told to go, and counts what it is told before.
constexpr char kCounting[] =
    "n=0; trap 'n=$((n+1)); echo usr1 $n' USR1; trap 'exit 6' USR2; echo ready; "
    "while :; do sleep 0.05; done";

class SignalsTest : public DdprunTest {};

TEST_F(SignalsTest, AForwardedOneReachesEachWorkerAndEndsNothing) {
  auto run =
      Launch({"--forward-signals", "SIGUSR1,USR2", "--nproc-per-node", "2", "sh", "-c", kCounting});
  ASSERT_TRUE(run->WaitForText("ready", 2));
  run->Signal(SIGUSR1);
  ASSERT_TRUE(run->WaitForText("usr1 1", 2)) << run->err();
  run->Signal(SIGUSR1);
  ASSERT_TRUE(run->WaitForText("usr1 2", 2));
  run->Signal(SIGUSR2);
  EXPECT_EQ(run->Wait(), 6) << "the workers' own code";
  EXPECT_THAT(run->err(), Not(HasSubstr("got SIGUSR")));
}

TEST_F(SignalsTest, AForwardedOneDoesNotReachTheWorkersOwnProcesses) {
  auto run = Launch({"--forward-signals", "USR1", "sh", "-c",
                     "trap 'echo told' USR1; sh -c 'echo helper=$$; exec sleep 100' & "
                     "while :; do wait; done"});
  ASSERT_TRUE(run->WaitForText("helper="));
  const pid_t helper = NumberAfter("helper=", run->out());
  run->Signal(SIGUSR1);
  ASSERT_TRUE(run->WaitForText("told"));
  EXPECT_EQ(kill(helper, 0), 0);
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
}

TEST_F(SignalsTest, OneOfOnesOwnChoiceEndsTheRun) {
  auto run = Launch({"--signals-to-handle", "SIGUSR1", "sh", "-c", "echo ready; exec sleep 100"});
  ASSERT_TRUE(run->WaitForText("ready"));
  run->Signal(SIGUSR1);
  EXPECT_EQ(run->Wait(), 128 + SIGUSR1);
  EXPECT_THAT(run->err(), HasSubstr("got SIGUSR1"));
}

// Slurm's --signal, a limit of CPU time, a power supply: the run's own words are the shell's.
TEST_F(SignalsTest, OneThatNobodyNamedEndsTheRunByItsOwnName) {
  for (const auto& [number, name] : {std::pair<int, std::string>{SIGUSR1, "SIGUSR1"},
                                     {SIGUSR2, "SIGUSR2"},
                                     {SIGXCPU, "SIGXCPU"},
                                     {SIGALRM, "SIGALRM"},
                                     {SIGPWR, "SIGPWR"},
                                     {SIGRTMIN + 3, "signal " + std::to_string(SIGRTMIN + 3)}}) {
    auto run = Launch({"sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; sleep 100 & wait"});
    ASSERT_TRUE(run->WaitForText("ready"));
    run->Signal(number);
    EXPECT_EQ(run->Wait(), 128 + number);
    EXPECT_THAT(run->out(), HasSubstr("saved"));
    EXPECT_THAT(run->err(), HasSubstr(" got " + name +
                                      "\n  exit code: " + std::to_string(128 + number) + "\n"));
  }
}

TEST_F(SignalsTest, TheSameOfAHead) {
  auto run = Launch({"-H", "localhost", "sh", "-c",
                     "trap 'echo saved; exit 0' TERM; echo ready; sleep 100 & wait"});
  ASSERT_TRUE(run->WaitForText("ready")) << run->err();
  run->Signal(SIGUSR1);
  EXPECT_EQ(run->Wait(), 128 + SIGUSR1);
  EXPECT_THAT(run->out(), HasSubstr("saved"));
  EXPECT_THAT(run->err(), HasSubstr("got SIGUSR1"));
}

TEST_F(SignalsTest, ByDefaultAShellsChildGetsSigtermToo) {
  const std::string child =
      "sh -c \"trap 'echo child; exit 0' TERM; echo ready; sleep 100 & wait\"";
  for (const bool group : {true, false}) {
    std::vector<std::string> flags = {"sh", "-c", "trap 'echo shell' TERM; " + child + "; exit 0"};
    if (!group) flags.insert(flags.begin(), {"--signal-scope", "worker", "--term-timeout", "1"});
    auto run = Launch(flags);
    ASSERT_TRUE(run->WaitForText("ready"));
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), 143);
    EXPECT_EQ(run->out().find("child") != std::string::npos, group) << run->out();
  }
}

TEST_F(SignalsTest, AnIgnoredOneStaysIgnoredAlsoIfItIsNamed) {
  RunningProcess run({"sh", "-c", "trap '' USR1 USR2; exec \"$@\"", "sh", BuildPath("bin/ddprun"),
                      "--signals-to-handle", "TERM,USR1", "--forward-signals", "USR2", "sh", "-c",
                      "echo ready; exec sleep 100"},
                     variables_);
  ASSERT_TRUE(run.WaitForText("ready"));
  run.Signal(SIGUSR1);
  run.Signal(SIGUSR2);
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 143);
}

// As a daemon may leave it behind; the kernel then reaps children, and nobody hears of their ends.
TEST_F(SignalsTest, SigchldThatIsIgnoredIsNotInherited) {
  const std::vector<std::pair<std::vector<std::string>, int>> workers = {
      {{"grep", "SigIgn", "/proc/self/status"}, 0}, {{"sh", "-c", "exit 4"}, 4}};
  for (const auto& [worker, exit_code] : workers) {
    const auto before = signal(SIGCHLD, SIG_IGN);
    auto run = Launch(worker);
    signal(SIGCHLD, before);
    EXPECT_EQ(run->Wait(), exit_code) << run->err();
    if (exit_code != 0) continue;
    const std::string mask = run->out().substr(run->out().find('\t') + 1);
    EXPECT_EQ(std::stoull(mask, nullptr, 16) & (1ull << (SIGCHLD - 1)), 0u) << run->out();
  }
}

TEST_F(SignalsTest, TheTimeAtTheEndIsNotTheOneBeforeARestart_RealTime) {
  // Deaf to SIGTERM. Rank 1 breaks round 1, so rank 0 has the time before a restart; in round 2
  // nothing breaks, and it has the time at the end.
  const std::string ready = folder_ + "/ready";
  const std::string script = "trap '' TERM; echo round $DDPRUN_ROUND; [ $RANK = 0 ] && touch " +
                             ready + "; [ $RANK$DDPRUN_ROUND = 11 ] && { while [ ! -e " + ready +
                             " ]; do sleep 0.01; done; exit 1; }; while :; do sleep 1; done";
  auto run = Launch({"--nproc-per-node", "2", "--max-restarts", "1", "--restart-timeout", "0.3",
                     "--shutdown-timeout", "3600", "sh", "-c", script});
  ASSERT_TRUE(run->WaitForText("round 2", 2)) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("did not end within 1 s of SIGTERM"));
  run->Signal(SIGTERM);
  ASSERT_TRUE(run->WaitForText("the workers have 3600 s to end")) << run->err();
  std::this_thread::sleep_for(kSignalEchoTime);  // a second one sooner is taken for an echo
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 143);
}

// ddprun as the foreground job of a terminal.
class TerminalTest : public DdprunTest {
 protected:
  void StartInTerminal(std::vector<std::string> arguments) {
    for (const auto& [name, value] : variables_) {
      arguments.insert(arguments.begin(), value.empty() ? name + "=" : name + "=" + value);
    }
    arguments.insert(arguments.begin(), "env");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int terminal = -1;
    pid_ = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      execvp(argv[0], argv.data());
      _exit(127);
    }
    ASSERT_GT(pid_, 0);
    terminal_ = OwnedFd(terminal);
  }

  bool WaitForText(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kTestDeadline;
    while (said_.find(text) == std::string::npos) {
      std::array<char, 4096> buffer;
      pollfd ready{.fd = terminal_.get(), .events = POLLIN, .revents = 0};
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) return false;
      const ssize_t size = read(terminal_.get(), buffer.data(), buffer.size());
      if (size <= 0) return false;  // EIO: nobody has it open any more
      said_.append(buffer.data(), static_cast<std::size_t>(size));
    }
    return true;
  }

  void PressCtrlC() { ASSERT_EQ(write(terminal_.get(), "\x03", 1), 1); }

  int WaitForEnd() {
    WaitForText("nothing says this: until the end");
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t pid_ = -1;
  OwnedFd terminal_;
  std::string said_;
};

TEST_F(TerminalTest, CtrlCOnceIsPolite) {
  StartInTerminal({BuildPath("bin/ddprun"), "sh", "-c",
                   "trap 'echo cleaned up; exit 0' INT TERM; echo ready; sleep 100 & wait"});
  ASSERT_TRUE(WaitForText("ready")) << said_;
  PressCtrlC();
  EXPECT_EQ(WaitForEnd(), 130);
  EXPECT_THAT(said_, HasSubstr("cleaned up"));
}

TEST_F(TerminalTest, CtrlCTwiceIsNow_RealTime) {
  StartInTerminal({BuildPath("bin/ddprun"), "--shutdown-timeout", "3600", "sh", "-c",
                   "trap '' INT TERM; echo ready; while :; do sleep 1; done"});
  ASSERT_TRUE(WaitForText("ready")) << said_;
  PressCtrlC();
  ASSERT_TRUE(WaitForText("a second signal kills them at once")) << said_;
  std::this_thread::sleep_for(kSignalEchoTime);  // as a person's fingers do
  PressCtrlC();
  EXPECT_EQ(WaitForEnd(), 130);
}

TEST_F(TerminalTest, ATerminalThatGoesEndsTheRunAndNohupKeepsIt) {
  for (const bool nohup : {false, true}) {
    const std::string file = folder_ + (nohup ? "/kept" : "/ended");
    ASSERT_EQ(mkfifo((file + ".go").c_str(), 0600), 0);
    std::vector<std::string> command = {
        BuildPath("bin/ddprun"), "sh", "-c",
        "echo pid=$$; read line < " + file + ".go; echo $line > " + file};
    if (nohup) command.insert(command.begin(), {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"});
    StartInTerminal(command);
    ASSERT_TRUE(WaitForText("pid=") && WaitForText("\n")) << said_;
    const ProcessWatch worker(NumberAfter("pid=", said_));
    const ProcessWatch ddprun(pid_);
    terminal_.Reset();
    if (nohup) std::ofstream(file + ".go") << "went on\n";
    EXPECT_TRUE(ddprun.WaitForEnd());
    EXPECT_TRUE(worker.WaitForEnd());
    waitpid(pid_, nullptr, 0);
    EXPECT_EQ(std::filesystem::exists(file), nohup);
    said_.clear();
  }
}

}  // namespace
}  // namespace ddprun
