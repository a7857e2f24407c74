// SPDX-License-Identifier: Apache-2.0
// A rendezvous service of which several run, on different machines. One leads; the others stand by.
// Nodes find the leader by asking all of them (client/session_client.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/service/server.h"

namespace ddprun {

class ServiceReplica {
 public:
  // Both are called on a thread of this service.
  struct Callbacks {
    // A sentence for people: who leads.
    std::function<void(const std::string& sentence)> on_note;
    // Once: the service cannot go on, and must be destroyed.
    std::function<void(const absl::Status& why)> on_end;
  };

  // Ends all streams and stops. Another service may lead at once.
  virtual ~ServiceReplica() = default;

  int port() const { return socket_.port; }
  // "ADDRESS:PORT", as other machines reach it.
  std::string target() const { return target_; }
  bool leads() { return Server() != nullptr; }
  // As RendezvousServer's; empty while it stands by.
  std::vector<RunStatus> Status();
  void WaitUntilDrained(std::chrono::milliseconds timeout);

 protected:
  using Lock = std::unique_lock<std::mutex>;

  ServiceReplica(ListeningSocket socket, std::string target, Callbacks callbacks);

  std::shared_ptr<RendezvousServer> Server();
  bool IsStopping();
  // On the thread of the class below. What has been said last is not said again.
  void Note(const std::string& sentence);

  const ListeningSocket socket_;
  const std::string target_;
  const Callbacks callbacks_;

  std::mutex mutex_;  // guards what follows, and what the class below says
  std::condition_variable changed_;
  bool stopping_ = false;
  std::shared_ptr<RendezvousServer> server_;  // while this one leads

 private:
  std::string noted_;
};

// Another descriptor of the same socket, for the servers that listen at it in turn.
absl::StatusOr<ListeningSocket> Share(const ListeningSocket& socket);

// "ADDRESS:PORT", as other machines reach it. UNAVAILABLE: it listens at all addresses, and this
// machine has none.
absl::StatusOr<std::string> TargetOf(const ListeningSocket& socket);

}  // namespace ddprun
