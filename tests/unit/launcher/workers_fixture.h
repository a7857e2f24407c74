// SPDX-License-Identifier: Apache-2.0
// What the pieces of Workers stand on, for two ranks, 4 and 5, whose program does not exist.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "launcher/base/background.h"
#include "launcher/workers/worker_requests.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class WorkersFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/workers_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    config_.temp_dir = name;
    config_.programs = {{.path = name + "/missing", .argv = {"missing"}}};
    config_.places.resize(2);
    sigemptyset(&config_.worker_signal_mask);
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    read_end_ = OwnedFd(fds[0]);
    write_end_ = OwnedFd(fds[1]);
    console_ = std::make_unique<Console>(fds[1], fds[1]);
    table_ = std::make_unique<WorkerTable>(config_, poller_, *console_);
    requests_ = std::make_unique<WorkerRequests>(config_, *table_, *console_);
    Start start;
    start.round = RoundId{1};
    start.rank_first = 4;
    start.world_size = 6;
    requests_->BeginRound(start, {});
    table_->BeginRound(start.rank_first);
  }
  void TearDown() override { std::filesystem::remove_all(config_.temp_dir); }

  // What the console has got since the last call.
  std::string Printed() {
    console_->Pump();
    std::string text(1 << 16, '\0');
    const ssize_t size = read(read_end_.get(), text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

  NodeConfig config_;
  Poller poller_;
  Background background_;
  OwnedFd read_end_;
  OwnedFd write_end_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<WorkerTable> table_;
  std::unique_ptr<WorkerRequests> requests_;
  WorkerCgroup cgroup_;
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace ddprun
