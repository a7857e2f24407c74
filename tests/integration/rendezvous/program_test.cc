// SPDX-License-Identifier: Apache-2.0
// ddprun-rendezvous as a user runs it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/integration/rendezvous/test_node.h"

#include "tests/testing/paths.h"

extern char** environ;

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    arguments.insert(arguments.begin(), BuildPath("bin/ddprun-rendezvous"));
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    output_ = out[0];
  }
  ~Program() {
    close(output_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // Up to and without the end of the line, or what there is when the output or the patience ends.
  std::string ReadLine() {
    std::string line;
    char c = 0;
    pollfd ready{output_, POLLIN, 0};
    while (poll(&ready, 1, 20'000) > 0 && read(output_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

  void Signal(int signal) { kill(pid_, signal); }

  // The exit code, or 128 + signal. The program's output ends with it.
  int Wait() {
    while (!ReadLine().empty()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

TEST(ProgramTest, ServesAndEndsAtASignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program({"--host", "127.0.0.1", "--port=0", "--rdzv_id", "mine", "--insecure"});
    const std::string line = program.ReadLine();
    ASSERT_THAT(line, StartsWith("listening on 127.0.0.1:"));
    Join join = MakeJoin("a", 1);
    join.run_id = "";
    TestNode a(line.substr(std::string("listening on ").size()), join);
    const auto start = a.Next<Start>();
    ASSERT_TRUE(start);
    EXPECT_EQ(start->run_id, "mine");
    program.Signal(signal);
    EXPECT_EQ(program.Wait(), 0);
    EXPECT_EQ(a.Next<SessionEnded>()->status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST(ProgramTest, BadFlagsAreOneSentence) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--prot", "1"}, "ddprun-rendezvous: unknown argument '--prot'; see --help"},
      {{"--port"}, "ddprun-rendezvous: --port needs a value; see --help"},
      {{"--port", "70000"},
       "ddprun-rendezvous: --port '70000' is not a port; give 1 to 65535, or 0 for any free one"},
      {{"--port", "x"},
       "ddprun-rendezvous: --port 'x' is not a port; give 1 to 65535, or 0 for any free one"},
      {{"--tls-cert", "a"},
       "ddprun-rendezvous: --tls-cert, --tls-key and --tls-ca belong together; give all three or "
       "none"},
      {{"--insecure", "--token-file=a"},
       "ddprun-rendezvous: --insecure means plain text and --token-file does not; leave one of "
       "them out"},
      {{"--token-file", "/nonexistent"},
       "ddprun-rendezvous: cannot read the token file /nonexistent: No such file or directory; "
       "give the run's secret with DDPRUN_TOKEN or --token-file"},
      {{"--insecure", "--host", "192.0.2.1"},
       "ddprun-rendezvous: cannot listen on 192.0.2.1:29500: that is not an address of this host; "
       "give one of its "
       "own"},
  };
  for (const auto& [arguments, sentence] : cases) {
    Program program(arguments);
    EXPECT_EQ(program.ReadLine(), sentence);
    EXPECT_EQ(program.ReadLine(), "");
    EXPECT_EQ(program.Wait(), 2);
  }
}

TEST(ProgramTest, APortInUseIsAFailure) {
  Program first({"--port", "0", "--insecure"});
  const std::string line = first.ReadLine();
  Program second({"--insecure", "--port", line.substr(line.rfind(':') + 1)});
  EXPECT_THAT(second.ReadLine(), HasSubstr("the port is in use"));
  EXPECT_EQ(second.Wait(), 1);
}

TEST(ProgramTest, HelpAndVersion) {
  Program help({"--help"});
  EXPECT_THAT(help.ReadLine(), StartsWith("Usage: ddprun-rendezvous"));
  EXPECT_EQ(help.Wait(), 0);
  Program version({"--version"});
  EXPECT_EQ(version.ReadLine(), std::string("ddprun-rendezvous ") + kSoftwareVersion);
  EXPECT_EQ(version.Wait(), 0);
}

}  // namespace
}  // namespace ddprun
