// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_probe.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {

std::vector<int> PlanPeers(int index, int count) {
  std::set<int> peers;
  if (count < kProbeAllNodesMax) {
    for (int peer = 0; peer < count; ++peer) peers.insert(peer);
  } else {
    peers = {0, (index + count - 1) % count, (index + 1) % count};
  }
  peers.erase(index);
  return {peers.begin(), peers.end()};
}

int RingPeer(int index, int count) { return (index + 1) % count; }

ClockEstimate EstimateClock(std::vector<ClockSample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const ClockSample& a, const ClockSample& b) { return a.rtt_ns < b.rtt_ns; });
  // The fastest reply had the least delay that could affect only one direction.
  const ClockSample& best = samples.front();
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return {.rtt_seconds = seconds(samples[samples.size() / 2].rtt_ns),
          .skew_seconds = seconds(best.peer_wall_ns - (best.own_wall_ns + best.rtt_ns / 2)),
          .uncertainty = seconds(best.rtt_ns) / 2};
}

namespace {

using Clock = std::chrono::steady_clock;

// A connection begins with the key. Each kAskTime is answered with the wall clock in nanoseconds,
// and is sent alone; all other bytes are counted, and their number is the answer to the end of the
// stream. Both numbers are 64-bit big endian.
constexpr std::size_t kKeyBytes = 32;
constexpr char kAskTime = 't';
constexpr std::chrono::milliseconds kAcceptPause{50};

std::string MakeKey() {
  std::random_device random;
  std::string key;
  while (key.size() < kKeyBytes) absl::StrAppendFormat(&key, "%08x", random());
  return key;
}

std::int64_t WallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Waits as long as the socket's own timeout.
bool SendAll(int fd, absl::string_view bytes, int flags = 0) {
  return send(fd, bytes.data(), bytes.size(), flags | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

bool SendNumber(int fd, std::int64_t number) {
  const std::uint64_t big = htobe64(static_cast<std::uint64_t>(number));
  return SendAll(fd, {reinterpret_cast<const char*>(&big), sizeof(big)}, MSG_DONTWAIT);
}

bool ReadNumber(int fd, std::int64_t& number) {
  std::uint64_t big = 0;
  if (recv(fd, &big, sizeof(big), MSG_WAITALL) != static_cast<ssize_t>(sizeof(big))) return false;
  number = static_cast<std::int64_t>(be64toh(big));
  return true;
}

void SetNoDelay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// A peer of the server, which never blocks in recv().
struct Connection {
  OwnedFd fd;
  std::string key = {};
  std::int64_t counted = 0;
};

// False: close the connection.
bool HandleReadable(Connection& connection, const std::string& key, std::string& block) {
  const ssize_t count = recv(connection.fd.get(), block.data(), block.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  absl::string_view bytes(block.data(), static_cast<std::size_t>(count));
  const std::size_t missing = std::min(kKeyBytes - connection.key.size(), bytes.size());
  connection.key.append(bytes.data(), missing);
  bytes.remove_prefix(missing);
  if (connection.key.size() < kKeyBytes) return count > 0;
  if (connection.key != key) return false;
  if (count == 0) {
    SendNumber(connection.fd.get(), connection.counted);
    return false;
  }
  if (bytes.find(kAskTime) != bytes.npos) return SendNumber(connection.fd.get(), WallClock());
  connection.counted += static_cast<std::int64_t>(bytes.size());
  return true;
}

// ---- The client

std::string ConnectError(int error) {
  switch (error) {
    case ECONNREFUSED:
      return "connection refused, by a firewall or by another machine with that address";
    case ETIMEDOUT:
      return "no answer, as where a firewall drops packets";
    default:
      return std::strerror(error);
  }
}

// For connect(), recv() and send().
void SetTimeouts(int fd, std::chrono::milliseconds timeout) {
  const timeval limit{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    setsockopt(fd, SOL_SOCKET, option, &limit, sizeof(limit));
}

// Takes at most kProbeConnectTimeout. An invalid result: see `error`.
OwnedFd Connect(const ProbePeer& peer, std::string& error) {
  const AddrInfoPtr addresses = Resolve(peer.address, peer.port, SOCK_STREAM, AI_NUMERICHOST);
  if (addresses == nullptr) {
    error = ConnectError(EADDRNOTAVAIL);
    return OwnedFd();
  }
  OwnedFd fd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SetTimeouts(fd.get(), kProbeConnectTimeout);
  if (!fd.valid() || connect(fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0) {
    error = ConnectError(errno == EINPROGRESS ? ETIMEDOUT : errno);
    return OwnedFd();
  }
  SetTimeouts(fd.get(), kProbeAnswerTimeout);
  SetNoDelay(fd.get());
  return fd;
}

// False: not all questions were answered.
bool AskClock(int fd, const std::string& key, PairFacts& pair) {
  if (!SendAll(fd, key)) return false;
  std::vector<ClockSample> samples(kProbeQuestions);
  for (ClockSample& sample : samples) {
    const auto start = Clock::now();
    sample.own_wall_ns = WallClock();
    if (!SendAll(fd, {&kAskTime, 1}) || !ReadNumber(fd, sample.peer_wall_ns)) return false;
    sample.rtt_ns = std::chrono::nanoseconds(Clock::now() - start).count();
  }
  const ClockEstimate estimate = EstimateClock(std::move(samples));
  pair.rtt_seconds = estimate.rtt_seconds;
  pair.skew_seconds = estimate.skew_seconds;
  pair.skew_uncertainty = estimate.uncertainty;
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(const std::string& address) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, 0);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<ProbeServer> server(new ProbeServer(*std::move(listener)));
  if (server->stop_.fd() < 0) return absl::ResourceExhaustedError(ErrnoText(EMFILE));
  server->thread_ = std::thread(&ProbeServer::Serve, server.get());
  return server;
}

ProbeServer::ProbeServer(ListeningSocket listener)
    : listener_(std::move(listener)), key_(MakeKey()) {}

ProbeServer::~ProbeServer() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

void ProbeServer::Serve() {
  std::vector<Connection> connections;
  std::string block(kProbeBlockBytes, '\0');
  while (true) {
    std::vector<pollfd> polled = {{.fd = stop_.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.fd.get(), .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections)
      polled.push_back({.fd = connection.fd.get(), .events = POLLIN, .revents = 0});
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    for (std::size_t i = polled.size(); i-- > 2;) {
      if (polled[i].revents == 0 || HandleReadable(connections[i - 2], key_, block)) continue;
      connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 2));
    }
    if (polled[1].revents == 0) continue;
    OwnedFd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // The listener stays readable: accepting again at once would only spin.
    if (!fd.valid() && IsOutOfResources(errno)) std::this_thread::sleep_for(kAcceptPause);
    if (!fd.valid() || connections.size() >= kProbeConnectionsMax) continue;
    SetNoDelay(fd.get());
    connections.push_back({.fd = std::move(fd)});
  }
}

Probe::Probe(int node, const std::vector<ProbePeer>& peers) : sockets_(peers.size()) {
  for (const ProbePeer& peer : peers)
    pairs_.push_back({.from = node, .to = peer.node, .error = {}});
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < peers.size(); ++i)
    threads.emplace_back([&, i] { sockets_[i] = Connect(peers[i], pairs_[i].error); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!sockets_[i].valid() || AskClock(sockets_[i].get(), peers[i].key, pairs_[i])) continue;
    pairs_[i].error = "connected, but no answer came: the program there is no ddprun doctor";
    sockets_[i].Reset();
  }
}

void Probe::Send(int peer) {
  const auto pair = std::find_if(pairs_.begin(), pairs_.end(),
                                 [&](const PairFacts& one) { return one.to == peer; });
  if (pair == pairs_.end()) return;
  const OwnedFd fd = std::move(sockets_[static_cast<std::size_t>(pair - pairs_.begin())]);
  if (!fd.valid()) return;
  const std::string block(kProbeBlockBytes, '\0');
  const auto start = Clock::now();
  for (std::size_t sent = 0; sent < kProbeBytes && Clock::now() - start < kProbeSendTime;
       sent += block.size()) {
    if (!SendAll(fd.get(), block)) break;
  }
  shutdown(fd.get(), SHUT_WR);
  // Counts what the peer received, not what this machine's buffers hold.
  std::int64_t received = 0;
  if (!ReadNumber(fd.get(), received)) return;
  pair->bytes_per_second =
      static_cast<double>(received) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace ddprun
