// SPDX-License-Identifier: Apache-2.0
// A node for the tests of this folder: a real client whose events are kept until the test asks for
// them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/version.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/service/server.h"

namespace ddprun {

// Long enough for a loaded machine; a test that passes never waits for it.
inline constexpr std::chrono::seconds kEventDeadline{20};

class SeenEvents {
 public:
  void Add(SessionEvent event) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  // The next event of that type; others before it are dropped.
  template <typename T>
  std::optional<T> Next(std::chrono::milliseconds timeout = kEventDeadline) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      while (!events_.empty()) {
        SessionEvent event = std::move(events_.front());
        events_.pop_front();
        if (auto* direct = GetIf<T>(event)) return std::move(*direct);
      }
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && events_.empty())
        return std::nullopt;
    }
  }

 private:
  template <typename T>
  static T* GetIf(SessionEvent& event) {
    if constexpr (std::is_same_v<T, Connecting> || std::is_same_v<T, Reconnecting> ||
                  std::is_same_v<T, Reconnected> || std::is_same_v<T, SessionEnded>) {
      return std::get_if<T>(&event);
    } else {
      auto* directive = std::get_if<Directive>(&event);
      return directive == nullptr ? nullptr : std::get_if<T>(directive);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SessionEvent> events_;
};

inline Join MakeJoin(const std::string& name, int nodes) {
  Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = "run";
  join.node_id = NodeId{"id-" + name};
  join.host = name;
  join.nodes_min = join.nodes_max = nodes;
  join.address = "127.0.0.1";
  join.worker_port = 4000;
  join.join_timeout = std::chrono::seconds(30);
  return join;
}

class TestNode {
 public:
  TestNode(const std::string& target, Join join,
           std::chrono::milliseconds connect_timeout = kEventDeadline,
           std::optional<TlsCredentials> credentials = std::nullopt,
           const std::string& server_name = "")
      : channel_(MakeServiceChannel(target, std::move(credentials), server_name)),
        client_(SessionClient::Open(
            channel_, std::move(join), connect_timeout,
            [log = log_](SessionEvent event) { log->Add(std::move(event)); })) {}

  template <typename T>
  std::optional<T> Next(std::chrono::milliseconds timeout = kEventDeadline) {
    return log_->Next<T>(timeout);
  }
  void Send(Report report) { client_->Send(std::move(report)); }
  void Close() { client_.reset(); }
  const std::shared_ptr<ServiceChannel>& channel() const { return channel_; }

 private:
  const std::shared_ptr<SeenEvents> log_ = std::make_shared<SeenEvents>();
  const std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> client_;
};

// A node of two with a lease, which may restart once.
inline Join LeasedJoin(const std::string& name,
                       std::chrono::milliseconds lease = std::chrono::seconds(30)) {
  Join join = MakeJoin(name, 2);
  join.lease = lease;
  join.restarts_max = 1;
  return join;
}

// Others before it are of earlier rounds, or told again.
inline void AwaitStart(TestNode& node, RoundId round) {
  std::optional<Start> start;
  do {
    start = node.Next<Start>();
    ASSERT_TRUE(start);
  } while (start->round != round);
}

inline std::unique_ptr<RendezvousServer> StartServer(
    std::optional<std::string> default_run_id = "run") {
  auto server = RendezvousServer::Start(
      {.address = "127.0.0.1", .port = 0, .default_run_id = std::move(default_run_id)});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// A folder that goes with the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddprun-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ddprun
