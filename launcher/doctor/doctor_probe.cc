// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_probe.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
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

// ---- Which nodes connect, and what their samples say

namespace {

using Clock = std::chrono::steady_clock;

// A connection begins with the key; one-byte requests follow. The reply to kAskTime is the wall
// clock in nanoseconds. After kTakeData all bytes up to the end of the stream are counted, and the
// reply is their number. Both numbers are 64-bit big endian.
constexpr std::size_t kKeyBytes = 32;
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr char kAskTime = 't';
constexpr char kTakeData = 'd';

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

std::string Bytes(std::int64_t number) {
  const std::uint64_t big = htobe64(static_cast<std::uint64_t>(number));
  return {reinterpret_cast<const char*>(&big), sizeof(big)};
}

std::int64_t Number(const char* bytes) {
  std::uint64_t big = 0;
  std::memcpy(&big, bytes, sizeof(big));
  return static_cast<std::int64_t>(be64toh(big));
}

void SetNoDelay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// A peer of the server, which never blocks in recv().
struct Connection {
  OwnedFd fd;
  std::string key;
  bool taking = false;
  std::int64_t taken = 0;
};

// False: close the connection.
bool Answer(Connection& connection, const std::string& key, absl::string_view bytes) {
  if (connection.key.size() < kKeyBytes) {
    const std::size_t missing = std::min(kKeyBytes - connection.key.size(), bytes.size());
    connection.key.append(bytes.data(), missing);
    bytes.remove_prefix(missing);
    if (connection.key.size() == kKeyBytes && connection.key != key) return false;
  }
  while (!bytes.empty()) {
    if (connection.taking) {
      connection.taken += static_cast<std::int64_t>(bytes.size());
      return true;
    }
    const char question = bytes.front();
    bytes.remove_prefix(1);
    if (question == kTakeData) {
      connection.taking = true;
    } else if (question == kAskTime) {
      const std::string answer = Bytes(WallClock());
      if (send(connection.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(answer.size()))
        return false;
    } else {
      return false;
    }
  }
  return true;
}

bool HandleReadable(Connection& connection, const std::string& key, std::string& block) {
  const ssize_t count = recv(connection.fd.get(), block.data(), block.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count > 0) return Answer(connection, key, {block.data(), static_cast<std::size_t>(count)});
  if (connection.taking) {
    const std::string answer = Bytes(connection.taken);
    [[maybe_unused]] const ssize_t sent =
        send(connection.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return false;
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
  const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
  const timeval limit{.tv_sec = seconds.count(),
                      .tv_usec = std::chrono::microseconds(timeout - seconds).count()};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
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

bool SendAll(int fd, absl::string_view bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool ReadNumber(int fd, std::int64_t& number) {
  char bytes[sizeof(std::int64_t)];
  if (recv(fd, bytes, sizeof(bytes), MSG_WAITALL) != static_cast<ssize_t>(sizeof(bytes)))
    return false;
  number = Number(bytes);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(const std::string& address) {
  const auto failure = [&](const char* what) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", address, " for the other nodes: ", what));
  };
  const AddrInfoPtr addresses = Resolve(address, 0, SOCK_STREAM, 0);
  if (addresses == nullptr) return failure("the address is not known");
  std::unique_ptr<ProbeServer> server(new ProbeServer());
  server->listener_ =
      OwnedFd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  const int fd = server->listener_.get();
  if (fd < 0 || bind(fd, addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return failure(std::strerror(errno));
  server->port_ =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  server->key_ = MakeKey();
  if (server->stop_.fd() < 0) server->stop_ = EventFd();  // again, for errno
  if (server->stop_.fd() < 0) return failure(std::strerror(errno));
  server->thread_ = std::thread([probe = server.get()] { probe->Serve(); });
  return server;
}

ProbeServer::~ProbeServer() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

void ProbeServer::Serve() {
  std::vector<Connection> connections;
  std::string block(kProbeBlockBytes, '\0');
  while (true) {
    std::vector<pollfd> polled = {{.fd = stop_.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections)
      polled.push_back({.fd = connection.fd.get(), .events = POLLIN, .revents = 0});
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    for (std::size_t i = polled.size(); i-- > 2;) {
      if (polled[i].revents == 0 || HandleReadable(connections[i - 2], key_, block)) continue;
      connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 2));
    }
    if (polled[1].revents == 0) continue;
    OwnedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      // The listener stays readable: accepting again at once would only spin.
      std::this_thread::sleep_for(kAcceptPause);
    }
    if (!fd.valid() || connections.size() >= kProbeConnectionsMax) continue;
    SetNoDelay(fd.get());
    connections.push_back({.fd = std::move(fd), .key = {}});
  }
}

Probe::Probe(int node, const std::vector<ProbePeer>& peers) : sockets_(peers.size()) {
  for (const ProbePeer& peer : peers)
    pairs_.push_back({.from = node, .to = peer.node, .error = {}});
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < peers.size(); ++i)
    threads.emplace_back([&, i] { sockets_[i] = Connect(peers[i], pairs_[i].error); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < peers.size(); ++i) Ask(i, peers[i]);
}

void Probe::Ask(std::size_t index, const ProbePeer& peer) {
  const int fd = sockets_[index].get();
  if (fd < 0) return;
  bool answered = SendAll(fd, peer.key);
  std::vector<ClockSample> samples;
  while (answered && static_cast<int>(samples.size()) < kProbeQuestions) {
    ClockSample sample;
    const auto start = Clock::now();
    sample.own_wall_ns = WallClock();
    answered = SendAll(fd, {&kAskTime, 1}) && ReadNumber(fd, sample.peer_wall_ns);
    sample.rtt_ns = std::chrono::nanoseconds(Clock::now() - start).count();
    if (answered) samples.push_back(sample);
  }
  PairFacts& pair = pairs_[index];
  if (!answered) {
    pair.error = "connected, but no answer came: the program there is no ddprun doctor";
    sockets_[index].Reset();
    return;
  }
  const ClockEstimate estimate = EstimateClock(std::move(samples));
  pair.rtt_seconds = estimate.rtt_seconds;
  pair.skew_seconds = estimate.skew_seconds;
  pair.skew_uncertainty = estimate.uncertainty;
}

void Probe::Send(int peer) {
  const auto pair = std::find_if(pairs_.begin(), pairs_.end(),
                                 [&](const PairFacts& one) { return one.to == peer; });
  if (pair == pairs_.end()) return;
  OwnedFd& fd = sockets_[static_cast<std::size_t>(pair - pairs_.begin())];
  if (!fd.valid() || !SendAll(fd.get(), {&kTakeData, 1})) return;
  const std::string block(kProbeBlockBytes, '\0');
  const auto start = Clock::now();
  while (Clock::now() - start < kProbeSendTime) {
    if (send(fd.get(), block.data(), block.size(), MSG_NOSIGNAL) <= 0) break;
  }
  shutdown(fd.get(), SHUT_WR);
  // Counts what the peer received, not what this machine's buffers hold.
  std::int64_t taken = 0;
  if (ReadNumber(fd.get(), taken)) {
    pair->bytes_per_second =
        static_cast<double>(taken) / std::chrono::duration<double>(Clock::now() - start).count();
  }
  fd.Reset();
}

}  // namespace ddprun
