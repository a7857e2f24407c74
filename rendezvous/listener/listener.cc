// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/listener/first_bytes.h"
#include "rendezvous/listener/ready_queue.h"
#include "rendezvous/security/hello_tag.h"
#include "rendezvous/wire/peer_name.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// While connections wait for handshakes to end, which gRPC does not report.
constexpr milliseconds kSweepInterval{50};
// When there are too many connections: checking all of them takes some ms.
constexpr milliseconds kFullSweepInterval{500};
// Between two checks of all waiting connections.
constexpr milliseconds kTurnInterval{10};
// After the process or the machine ran out of descriptors: accepting again at once would spin.
constexpr milliseconds kAcceptPause{100};
constexpr int kAcceptsAtOnce = 64;
// Between two reports of rejected members.
constexpr milliseconds kRejectionInterval{1000};
// Bytes read from a rejected peer: more than any client sends up to and with its first call.
constexpr std::size_t kDrainedBytesMax = 64u << 10;

std::size_t ConnectionsMax() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
    return kConnectionsMax;
  const auto limit = static_cast<std::size_t>(files.rlim_cur);
  return std::min(kConnectionsMax, limit > 2 * kReservedFiles ? limit - kReservedFiles : limit / 2);
}

Handshakes::Socket Identify(int fd) {
  Handshakes::Socket socket{.fd = fd};
  socklen_t size = sizeof socket.cookie;
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &socket.cookie, &size);
  return socket;
}

// Harmless also where the descriptor was reused: it only reads the cookie.
bool IsStillOpen(const Handshakes::Socket& socket) {
  const Handshakes::Socket now = Identify(socket.fd);
  return now.cookie != 0 && now.cookie == socket.cookie;
}

// Ends a connection that gRPC holds, as its peer could: gRPC reads the end and closes its
// descriptor. Works on a duplicate, since the descriptor may be reused at any time.
void EndConnection(const Handshakes::Socket& socket) {
  const OwnedFd copy(fcntl(socket.fd, F_DUPFD_CLOEXEC, 0));
  if (copy.valid() && IsStillOpen({.fd = copy.get(), .cookie = socket.cookie})) {
    shutdown(copy.get(), SHUT_RDWR);
  }
}

// At least one.
std::string Days(std::time_t seconds) {
  constexpr std::time_t kDay = 24 * 3600;
  const std::time_t days = std::max<std::time_t>(1, (seconds + kDay / 2) / kDay);
  return absl::StrCat(days, days == 1 ? " day" : " days");
}

// For the people at this host. The peer gets an alert.
absl::Status WhyRejected(Expired expired, const CertificateTimes& node,
                         const CertificateTimes& service, std::time_t now) {
  const bool is_node = expired == Expired::kNode;
  const CertificateTimes& times = is_node ? node : service;
  const std::time_t by_clock = is_node ? now : node.made;
  return absl::UnauthenticatedError(absl::StrCat(
      is_node ? "its certificate expired " : "by its clock this service's certificate expired ",
      Days(by_clock - times.end), " ago", is_node ? " by this host's clock" : "",
      ": the clocks of the two machines differ, or ", is_node ? "it" : "this service",
      " was started more than ", Days(times.end - times.made),
      " ago; set both clocks, e.g. by NTP, and start ", is_node ? "it" : "both", " again"));
}

}  // namespace

class Listener::Loop {
 public:
  Loop(ListeningSocket socket, Options options, HandOver hand_over)
      : options_(std::move(options)),
        hand_over_(std::move(hand_over)),
        socket_(std::move(socket)),
        handshakes_({.connections_max = ConnectionsMax(),
                     .strangers = {kHandshakesMax, kHandshakesPerAddressMax},
                     .members = {kMemberHandshakesMax, kHandshakesPerMemberMax},
                     .patience = options_.handshake_patience,
                     .timeout = options_.handshake_timeout}),
        connections_max_(ConnectionsMax()) {
    watches_ = OpenWatch();
    thread_ = std::thread([this] { Run(); });
  }

  ~Loop() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
    }
    Wake();
    thread_.join();
    for (const auto& entry : waiting_) close(entry.first);
    if (options_.peers == Peers::kSameUser) unlink(socket_.address.c_str());
  }

  void Proven(absl::string_view peer) {
    if (options_.peers == Peers::kSameUser) return;
    const std::string name = NameOfGrpc(peer);
    bool wake = false;
    {
      absl::MutexLock lock(&mutex_);
      handshakes_.Proven(name);
      wake = someone_ready_;
    }
    if (wake) Wake();
  }

 private:
  using Pool = Handshakes::Pool;
  using Deadline = std::pair<TimePoint, int>;

  enum class State {
    kSilent,   // its first bytes are incomplete
    kReady,    // waits until a handshake may begin
    kLeaving,  // has been sent the reason, and may read it
  };
  struct Connection {
    State state = State::kSilent;
    PeerName name;
    Pool pool = Pool::kStrangers;  // what it waits for when it is ready, and its group there
    std::string group;
    TimePoint deadline;
    absl::string_view again;  // of kLeaving
    std::size_t drained = 0;
  };

  [[nodiscard]] bool Watch(int fd, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  // False: out of descriptors.
  bool OpenWatch() {
    epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
    if (wake_.fd() < 0) wake_ = EventFd();
    return epoll_.valid() && wake_.fd() >= 0 && Watch(socket_.fd.get(), EPOLLIN) &&
           Watch(wake_.fd(), EPOLLIN);
  }

  bool IsStopping() {
    absl::MutexLock lock(&mutex_);
    return stop_;
  }
  void Unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  void Wake() {
    absl::MutexLock lock(&mutex_);
    wake_.Notify();
  }

  void Run() {
    const SignalsBlocked blocked;
    while (!watches_) {
      if (IsStopping()) return;
      std::this_thread::sleep_for(kAcceptPause);
      absl::MutexLock lock(&mutex_);
      watches_ = OpenWatch();
    }
    std::vector<epoll_event> events(256);
    while (true) {
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   WaitMilliseconds(Clock::now()));
      const TimePoint now = Clock::now();
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == wake_.fd()) {
          wake_.Clear();
        } else if (fd == socket_.fd.get()) {
          AcceptSome(now);
        } else {
          OnBytes(fd, (events[static_cast<std::size_t>(i)].events & EPOLLRDHUP) != 0, now);
        }
      }
      if (IsStopping()) return;
      CloseLate(now);
      BeginHandshakes(now);
      if (accept_again_ && *accept_again_ <= now) {
        accept_again_.reset();
        if (!Watch(socket_.fd.get(), EPOLLIN)) accept_again_ = now + kAcceptPause;
      }
    }
  }

  int WaitMilliseconds(TimePoint now) const {
    std::optional<TimePoint> next = accept_again_;
    if (!deadlines_.empty()) next = Earliest({next, deadlines_.begin()->first});
    if (AnyReady()) {
      next = Earliest({next, now + kSweepInterval, std::max(now, next_turn_)});
    }
    if (!next) return -1;
    return static_cast<int>(
        std::max<std::int64_t>(0, std::chrono::ceil<milliseconds>(*next - now).count()));
  }

  void AcceptSome(TimePoint now) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      const int fd = accept4(socket_.fd.get(), reinterpret_cast<sockaddr*>(&from), &size,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        Take(fd, from, now);
        continue;
      }
      if (IsOutOfResources(errno)) {
        Unwatch(socket_.fd.get());
        accept_again_ = now + kAcceptPause;
      }
      if (errno != ECONNABORTED && errno != EINTR) return;
    }
  }

  void Take(int fd, const sockaddr_storage& from, TimePoint now) {
    if (options_.peers == Peers::kSameUser) {
      if (!IsOwnUser(fd)) {
        close(fd);
        return;
      }
    } else {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (waiting_.size() >= options_.silent_max || IsFull()) CloseOldestStranger();
    if (IsFull()) {
      close(fd);
      return;
    }
    if (!Watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET)) {
      close(fd);
      return;
    }
    const TimePoint deadline = now + options_.handshake_timeout;
    waiting_.emplace(fd, Connection{.name = NameOf(from), .deadline = deadline});
    deadlines_.emplace(deadline, fd);
  }

  bool IsFull() {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() + handshakes_.connections() < connections_max_) return false;
    const TimePoint now = Clock::now();
    if (now < next_full_sweep_) return true;
    next_full_sweep_ = now + kFullSweepInterval;
    handshakes_.Sweep(now, IsStillOpen, /*all=*/true);
    return waiting_.size() + handshakes_.connections() >= connections_max_;
  }

  // Waiting members are few and do not block anybody.
  void CloseOldestStranger() {
    for (const Deadline& oldest : deadlines_) {
      const Connection& connection = waiting_.at(oldest.second);
      if (connection.state == State::kReady && connection.pool == Pool::kMembers) continue;
      Close(oldest.second);
      return;
    }
  }

  void OnBytes(int fd, bool ended, TimePoint now) {
    const auto it = waiting_.find(fd);
    if (it == waiting_.end()) return;  // closed for another event of the same wait
    switch (it->second.state) {
      case State::kSilent:
        return Listen(fd, it->second, ended, now);
      case State::kReady:
        return;
      case State::kLeaving:
        return Drain(fd, it->second);
    }
  }

  void Listen(int fd, Connection& connection, bool ended, TimePoint now) {
    buffer_.resize(kFirstBytesMax);
    const ssize_t count = recv(fd, buffer_.data(), buffer_.size(), MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return Close(fd);
    const FirstBytes what = ReadFirstBytes({buffer_.data(), static_cast<std::size_t>(count)});
    const bool tls = options_.peers == Peers::kTls;
    switch (what.kind) {
      case FirstBytes::Kind::kIncomplete:
        if (ended) Close(fd);
        return;
      case FirstBytes::Kind::kOther:
        return Close(fd);
      case FirstBytes::Kind::kHttp2:
        return tls ? Leave(fd, connection, kHttp2Settings, now, kNeedsTlsReply)
                   : SetReady(fd, connection, std::nullopt);
      case FirstBytes::Kind::kTls13:
        return tls ? OnHello(fd, connection, what.server_name, now)
                   : Leave(fd, connection, kInsufficientSecurityAlert, now);
      case FirstBytes::Kind::kTlsOlder:
        return Leave(fd, connection, tls ? kProtocolVersionAlert : kInsufficientSecurityAlert, now);
    }
  }

  // After the handshake gRPC would close the connection without a word.
  void OnHello(int fd, Connection& connection, absl::string_view server_name, TimePoint now) {
    const std::optional<HelloTag> tag = ReadTag(options_.hello_key, server_name);
    if (!tag) return SetReady(fd, connection, std::nullopt);
    const std::time_t wall_time = std::time(nullptr);
    const Expired expired = WhichExpired(tag->times, options_.times, wall_time);
    if (expired == Expired::kNone) return SetReady(fd, connection, tag->number);
    if (options_.on_rejected && now >= next_rejection_) {
      next_rejection_ = now + kRejectionInterval;
      const std::string& peer = connection.name.peer;
      options_.on_rejected(peer.substr(0, peer.find(' ')),
                           WhyRejected(expired, tag->times, options_.times, wall_time));
    }
    Leave(fd, connection, expired == Expired::kNode ? kClientExpiredAlert : kServiceExpiredAlert,
          now);
  }

  // `tag`: of a member; its handshake takes slots of that tag.
  void SetReady(int fd, Connection& connection, std::optional<std::string> tag) {
    connection.state = State::kReady;
    connection.pool = tag ? Pool::kMembers : Pool::kStrangers;
    connection.group = tag ? *std::move(tag) : connection.name.group;
    ready_[Index(connection.pool)].Add(connection.group, fd);
  }

  // Sends the reason and waits until the peer has had time to read it. Closing with unread bytes
  // would discard it, and gRPC's client reports even an orderly end of the connection in place of a
  // reply that comes with it. `again`: sent after all that the peer sends.
  void Leave(int fd, Connection& connection, absl::string_view reason, TimePoint now,
             absl::string_view again = "") {
    Send(fd, reason);
    connection.state = State::kLeaving;
    connection.again = again;
    deadlines_.erase({connection.deadline, fd});
    connection.deadline = now + (again.empty() ? kLingerTimeout : options_.handshake_timeout);
    deadlines_.emplace(connection.deadline, fd);
    Drain(fd, connection);
  }

  void Drain(int fd, Connection& connection) {
    while (connection.drained <= kDrainedBytesMax) {
      const ssize_t count = recv(fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) return Send(fd, connection.again);
      if (count <= 0) break;
      connection.drained += static_cast<std::size_t>(count);
    }
    Close(fd);
  }

  static void Send(int fd, absl::string_view bytes) {
    [[maybe_unused]] const ssize_t sent =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void CloseLate(TimePoint now) {
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      Close(deadlines_.begin()->second);
    }
  }

  void BeginHandshakes(TimePoint now) {
    std::vector<int> begun;
    std::vector<Handshakes::Socket> ended;
    {
      absl::MutexLock lock(&mutex_);
      if (AnyReady() && now >= next_sweep_) {
        handshakes_.Sweep(now, IsStillOpen, handshakes_.MustSweepAll());
        next_sweep_ = now + kSweepInterval;
      }
      BeginLocked(Pool::kMembers, now, begun, ended);
      if (now >= next_turn_) BeginLocked(Pool::kStrangers, now, begun, ended);
      if (AnyReady() && now >= next_turn_) next_turn_ = now + kTurnInterval;
      someone_ready_ = AnyReady();
    }
    for (const Handshakes::Socket& socket : ended) EndConnection(socket);
    for (const int fd : begun) hand_over_(fd);
  }

  // One from each group in turn.
  void BeginLocked(Pool pool, TimePoint now, std::vector<int>& begun,
                   std::vector<Handshakes::Socket>& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ReadyQueue& ready = ready_[Index(pool)];
    for (std::size_t refused = 0; refused < ready.groups();) {
      const std::string group = ready.NextGroup();
      if (options_.peers != Peers::kSameUser && !handshakes_.MayBegin(pool, group)) {
        const auto oldest = handshakes_.MakeRoom(pool, group, now);
        if (oldest) ended.push_back(*oldest);
        if (!oldest || !handshakes_.MayBegin(pool, group)) {
          ++refused;
          continue;
        }
      }
      refused = 0;
      const int fd = ready.TakeNewest(group);
      const auto found = waiting_.find(fd);
      if (options_.peers != Peers::kSameUser)
        handshakes_.Began(found->second.name.peer, pool, group, Identify(fd), now);
      Forget(found);
      begun.push_back(fd);
    }
  }

  static std::size_t Index(Pool pool) { return static_cast<std::size_t>(pool); }
  bool AnyReady() const { return !ready_[0].empty() || !ready_[1].empty(); }

  void Close(int fd) {
    const auto it = waiting_.find(fd);
    const Connection& connection = it->second;
    if (connection.state == State::kReady) {
      ready_[Index(connection.pool)].Remove(connection.group, fd);
    }
    Forget(it);
    close(fd);
  }

  void Forget(absl::flat_hash_map<int, Connection>::iterator it) {
    Unwatch(it->first);
    deadlines_.erase({it->second.deadline, it->first});
    waiting_.erase(it);
  }

  const Options options_;
  const HandOver hand_over_;
  const ListeningSocket socket_;
  OwnedFd epoll_;
  EventFd wake_;
  bool watches_ = false;

  absl::Mutex mutex_;
  Handshakes handshakes_ ABSL_GUARDED_BY(mutex_);
  bool someone_ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  const std::size_t connections_max_;
  absl::flat_hash_map<int, Connection> waiting_;  // by descriptor
  std::set<Deadline> deadlines_;
  ReadyQueue ready_[2];  // by pool
  std::optional<TimePoint> accept_again_;
  TimePoint next_sweep_;
  TimePoint next_full_sweep_;
  TimePoint next_turn_;  // of strangers
  TimePoint next_rejection_;
  std::string buffer_;

  std::thread thread_;  // last: it uses all of the above
};

Listener::Listener(ListeningSocket socket, Options options, HandOver hand_over)
    : loop_(std::make_unique<Loop>(std::move(socket), std::move(options), std::move(hand_over))) {}

Listener::~Listener() = default;

void Listener::Proven(absl::string_view peer) { loop_->Proven(peer); }

}  // namespace ddprun
