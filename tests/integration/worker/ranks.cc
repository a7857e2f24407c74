// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/worker/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

namespace ddprun {
namespace {

constexpr const char* kRankVariable = "DDPRUN_TEST_RANK_PROCESS";
constexpr const char* kRankVariableSet = "DDPRUN_TEST_RANK_PROCESS=1";

std::string CurrentTest() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

class RankProcess {
 public:
  explicit RankProcess(const WorkerEnv& env)
      : log_(testing::TempDir() + "rank_" + std::to_string(getpid()) + "_" +
             std::to_string(env.rank) + ".log") {
    std::vector<std::string> variables{kRankVariableSet};
    for (const auto& [name, value] : ToEnviron(env)) variables.push_back(name + "=" + value);
    for (char** variable = environ; *variable != nullptr; ++variable)
      variables.push_back(*variable);
    std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=" + CurrentTest(),
                                       "--gtest_brief=1"};  // only what fails, which is shown
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const int error = posix_spawn(&pid_, arguments[0].c_str(), &actions, nullptr,
                                  Pointers(arguments).data(), Pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << "a rank's process could not be started";
  }
  ~RankProcess() { unlink(log_.c_str()); }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // The ranks' own timeouts end them; the test's timeout ends the rest.
  int Wait() const {
    int status = -1;
    waitpid(pid_, &status, 0);
    return status;
  }

  std::string Log() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  const std::string log_;
  pid_t pid_ = -1;
};

}  // namespace

bool IsRankProcess() { return getenv(kRankVariable) != nullptr; }

void RunProcesses(int size, const std::function<WorkerEnv(int rank)>& env_of,
                  const std::function<void(const WorkerEnv&)>& body) {
  if (IsRankProcess()) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is stopped leaves no rank behind
    const absl::StatusOr<WorkerEnv> env = FromProcessEnviron();
    ASSERT_TRUE(env.ok()) << env.status();
    body(*env);
    return;
  }
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<RankProcess>(env_of(rank)));
  for (int rank = 0; rank < size; ++rank) {
    const RankProcess& process = *ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(process.Wait(), 0) << "rank " << rank << " said:\n" << process.Log();
  }
}

std::vector<std::string> RunThreads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([rank, &body, &error = errors[static_cast<std::size_t>(rank)]] {
      try {
        body(rank);
      } catch (const std::exception& exception) {
        error = exception.what();
        if (error.empty()) error = "an exception without words";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

ReservedPort::ReservedPort() {
  if (IsRankProcess()) return;
  socket_ = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_TRUE(setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
              bind(socket_.get(), any, size) == 0 && getsockname(socket_.get(), any, &size) == 0);
  port_ = ntohs(address.sin_port);
}

WorkerEnv EnvByHand(int rank, int size, int port) {
  WorkerEnv env;
  env.rank = rank;
  env.local_rank = rank;
  env.world_size = size;
  env.local_world_size = size;
  env.master_addr = "127.0.0.1";
  env.master_port = port;
  return env;
}

}  // namespace ddprun
