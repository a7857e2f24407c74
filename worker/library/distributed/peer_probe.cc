// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/peer_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <sstream>
#include <vector>

#include "rendezvous/base/addresses.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/resolve.h"
#include "worker/library/base/host_name.h"
#include "worker/library/distributed/network_address.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A firewall shuts a node off from all others alike, so a few peers are enough.
constexpr int kPeersMax = 8;
// Time for the others to get here; the rest is for the connections.
constexpr milliseconds kAnswerTime = kPeerProbeTime / 2;

struct Peer {
  int rank = 0;
  std::string address;
  std::string host;
  OwnedFd fd;
  bool done = false;
};

std::string KeyOf(int rank) { return "ddprun/peer_probe/" + std::to_string(rank); }

milliseconds Until(Clock::time_point deadline) {
  const auto rest = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::max(rest, milliseconds(0));
}

// Rank 0, and the ranks at this one's place on the next nodes.
std::vector<int> RanksToTry(const WorkerEnv& env) {
  std::vector<int> ranks;
  const int stride = std::max(1, env.local_world_size);
  const int nodes = std::min(kPeersMax, (env.world_size - 1) / stride);
  for (int i = 1; i <= nodes; ++i) ranks.push_back((env.rank + i * stride) % env.world_size);
  if (env.rank >= stride && std::find(ranks.begin(), ranks.end(), 0) == ranks.end())
    ranks.push_back(0);
  return ranks;
}

// Begins to connect. errno's text if that fails at once.
std::string Begin(Peer& peer, int port) {
  const AddrInfoPtr list = Resolve(peer.address, port, SOCK_STREAM, AI_NUMERICHOST);
  if (list == nullptr) return "its address is not understood";
  peer.fd = OwnedFd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(peer.fd.get(), list->ai_addr, list->ai_addrlen) == 0) peer.done = true;
  return peer.done || errno == EINPROGRESS ? "" : std::strerror(errno);
}

// 0 once it has answered; a port that is closed by now has answered too.
int ErrorOf(const Peer& peer) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(peer.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == ECONNREFUSED || error == ECONNRESET ? 0 : error;
}

std::string Describe(const Peer& peer, const std::string& reason) {
  return "rank " + std::to_string(peer.rank) + " at " + peer.address + " (host " + peer.host +
         "): " + reason;
}

// Waits for all until the deadline, so that the others find this one's listener too.
std::string Await(std::vector<Peer>& peers, Clock::time_point deadline) {
  std::string first;
  while (Until(deadline).count() > 0) {
    std::vector<pollfd> waiting;
    for (const Peer& peer : peers) waiting.push_back({peer.done ? -1 : peer.fd.get(), POLLOUT, 0});
    if (poll(waiting.data(), waiting.size(), static_cast<int>(Until(deadline).count())) <= 0)
      continue;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      peers[i].done = true;
      const int error = ErrorOf(peers[i]);
      if (error != 0 && error != ETIMEDOUT && first.empty())
        first = Describe(peers[i], std::strerror(error));
    }
  }
  for (const Peer& peer : peers) {
    if (!peer.done && first.empty())
      first = Describe(peer, "no answer, as where a firewall drops packets");
  }
  return first;
}

std::string Probe(c10d::Store& store, const WorkerEnv& env, const std::string& own_address) {
  const auto begin = Clock::now();
  const auto listener = ListenOn(own_address, 0);
  if (!listener.ok()) return "";
  const std::string own = own_address + " " + std::to_string(listener->port) + " " + HostName();
  store.set(KeyOf(env.rank), std::vector<std::uint8_t>(own.begin(), own.end()));
  std::vector<Peer> peers;
  std::string first;
  for (const int rank : RanksToTry(env)) {
    const milliseconds rest = std::max(Until(begin + kAnswerTime), milliseconds(1));
    try {
      store.wait({KeyOf(rank)}, rest);
    } catch (const std::exception&) {
      continue;  // that rank has not come here
    }
    Peer peer{.rank = rank};
    int port = 0;
    std::istringstream(store.get_to_str(KeyOf(rank))) >> peer.address >> port >> peer.host;
    const std::string error = Begin(peer, port);
    if (!error.empty() && first.empty()) first = Describe(peer, error);
    if (error.empty()) peers.push_back(std::move(peer));
  }
  const std::string waited = Await(peers, begin + kPeerProbeTime);
  return first.empty() ? waited : first;
}

}  // namespace

std::string FindUnreachable(const c10::intrusive_ptr<c10d::Store>& store, const WorkerEnv& env) {
  try {
    // Another connection: what hangs may hold this one.
    return Probe(*store->clone(), env, AddressForPeers(env));
  } catch (const std::exception&) {
    return "";  // the store is gone: there is nothing to be found out
  }
}

}  // namespace ddprun
