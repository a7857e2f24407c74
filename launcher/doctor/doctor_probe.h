// SPDX-License-Identifier: Apache-2.0
// The sockets with which `ddprun doctor` tests the connections between nodes: plain TCP to a port
// that the kernel chooses, like the connections of NCCL and Gloo.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/doctor/doctor_rules.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Answers the requests of other nodes on a thread of its own until it is destroyed. A peer must
// first send the key, which it gets from the run's store.
class ProbeServer {
 public:
  // Listens at the address. UNAVAILABLE: one sentence.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const std::string& address);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

  int port() const { return port_; }
  const std::string& key() const { return key_; }

 private:
  ProbeServer() = default;
  void Serve();

  // Constant after Start().
  OwnedFd listener_;
  EventFd stop_;
  int port_ = 0;
  std::string key_;

  std::thread thread_;
};

struct ProbePeer {
  int node = 0;
  std::string address;
  int port = 0;
  std::string key;
};

// The connections from this node to its peers.
class Probe {
 public:
  // Connects to all peers at once, for at most kProbeConnectTimeout, and asks each that is reached
  // for its clock. `node`: this node.
  Probe(int node, const std::vector<ProbePeer>& peers);

  // Sends data to that node for kProbeSendTime, if it was reached.
  void Send(int peer);

  const std::vector<PairFacts>& pairs() const { return pairs_; }

 private:
  void Ask(std::size_t index, const ProbePeer& peer);

  std::vector<PairFacts> pairs_;
  std::vector<OwnedFd> sockets_;  // as pairs_
};

}  // namespace ddprun
