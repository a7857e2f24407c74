// SPDX-License-Identifier: Apache-2.0
// The real ddprun with small shell programs as workers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "rendezvous/base/addresses.h"
#include "rendezvous/client/session_client.h"
#include "tests/testing/paths.h"
#include "tests/testing/run_process.h"

namespace ddprun {

class DdprunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/ddprun_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::create_directory(folder_ + "/runtime");
    variables_["XDG_RUNTIME_DIR"] = folder_ + "/runtime";
    variables_["OMP_NUM_THREADS"] = "";
    variables_["XDG_CONFIG_HOME"] = folder_ + "/config";  // for the token file
  }

  // Whatever a test did, ddprun must have left no temporary file.
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/runtime"));
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<RunningProcess> Launch(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), BuildPath("bin/ddprun"));
    return std::make_unique<RunningProcess>(std::move(arguments), variables_);
  }

  // Ended.
  std::unique_ptr<RunningProcess> Ctl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), BuildPath("bin/ddpctl"));
    auto process = std::make_unique<RunningProcess>(std::move(arguments), variables_);
    process->Wait();
    return process;
  }

  // One node of two on this machine, with its own flags before the worker's shell script.
  std::unique_ptr<RunningProcess> LaunchNode(int node_rank, int port, const std::string& script,
                                             std::vector<std::string> flags = {}) const {
    std::vector<std::string> arguments = {
        "--nnodes",      "2",         "--node-rank",   std::to_string(node_rank),
        "--master-addr", "127.0.0.1", "--master-port", std::to_string(port)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), {"sh", "-c", script});
    return Launch(std::move(arguments));
  }

  std::string Content(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // The number after `label` in what was said, as in "pid=17".
  static pid_t NumberAfter(const std::string& label, const std::string& text) {
    const std::size_t at = text.find(label);
    return at == std::string::npos ? -1
                                   : static_cast<pid_t>(std::stoi(text.substr(at + label.size())));
  }

  // Warden, keeper, agent. -1: it is not so.
  static pid_t KeeperOf(const RunningProcess& run) { return OnlyChildOf(run.pid()); }
  static pid_t AgentOf(const RunningProcess& run) { return OnlyChildOf(KeeperOf(run)); }
  static pid_t OnlyChildOf(pid_t pid) {
    const std::vector<pid_t> children = ChildrenOf(pid);
    EXPECT_EQ(children.size(), 1u);
    return children.size() == 1 ? children[0] : -1;
  }

  std::string folder_;
  std::map<std::string, std::string> variables_;
};

// With a port that was free a moment ago, for nodes that meet.
class DdprunPortTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    const absl::StatusOr<int> port = FindFreePort("127.0.0.1");
    ASSERT_TRUE(port.ok());
    port_ = *port;
  }
  int port_ = 0;
};

}  // namespace ddprun
