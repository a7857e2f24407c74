// SPDX-License-Identifier: Apache-2.0
// How `ddprun doctor` tests the connections between nodes: which nodes connect, over plain TCP to a
// port that the kernel chooses, like the connections of NCCL and Gloo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/doctor/doctor_rules.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// The peers of node `index` of `count`, ascending: all other nodes, or from kProbeAllNodesMax nodes
// on its two neighbours and node 0, so that the work of a node does not grow with their number.
std::vector<int> PlanPeers(int index, int count);

// The peer to which it sends data while all nodes do the same, as in a ring allreduce.
int RingPeer(int index, int count);

// One request: this node's wall clock when it was sent, the time until the reply, and the peer's
// wall clock in between.
struct ClockSample {
  std::int64_t own_wall_ns = 0;
  std::int64_t rtt_ns = 0;
  std::int64_t peer_wall_ns = 0;
};

struct ClockEstimate {
  double rtt_seconds = 0;   // the median
  double skew_seconds = 0;  // of the peer's clock; positive: it is ahead
  double uncertainty = 0;   // half of the shortest round trip
};

// `samples` is not empty.
ClockEstimate EstimateClock(std::vector<ClockSample> samples);

// Answers the requests of other nodes on a thread of its own until it is destroyed. A peer must
// first send the key, which it gets from the run's store.
class ProbeServer {
 public:
  // Listens at the address. The error is a sentence.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const std::string& address);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

  int port() const { return listener_.port; }
  const std::string& key() const { return key_; }

 private:
  explicit ProbeServer(ListeningSocket listener);
  void Serve();

  const ListeningSocket listener_;
  const EventFd stop_;
  const std::string key_;
  std::thread thread_;
};

struct ProbePeer {
  int node = 0;
  std::string address;
  int port = 0;
  std::string key;
};

// Connects to all peers at once, for at most kProbeConnectTimeout, and asks each that is reached
// for its clock.
class Probe {
 public:
  // `node`: this node.
  Probe(int node, const std::vector<ProbePeer>& peers);

  // Sends kProbeBytes to that node, for at most kProbeSendTime, if it was reached.
  void Send(int peer);

  const std::vector<PairFacts>& pairs() const { return pairs_; }

 private:
  std::vector<PairFacts> pairs_;
  std::vector<OwnedFd> sockets_;  // as pairs_
};

}  // namespace ddprun
