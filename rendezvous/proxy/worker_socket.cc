// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/worker_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Parts of a request: each has kRequestRoomTimeout to arrive while others wait.
constexpr std::size_t kRequestParts = 10;

// The epoll ids of the loop's own descriptors; those of streams are higher.
constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kWaker = 1;
constexpr std::uint64_t kTcpListener = 2;
constexpr std::uint64_t kFirstWorker = 3;

// One read of a large request, which may have hundreds of keys.
constexpr std::size_t kReadBytes = 16 * 1024;
// One turn of small requests, each of which takes about as long as reading it: other clients wait
// for all that one has sent and that is read in its turn.
constexpr std::size_t kTurnBytes = 256;

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Between two attempts to accept while no descriptor is left: nothing reports when one becomes
// free, and accepting again at once would only spin.
constexpr std::chrono::milliseconds kAcceptPause{50};

std::size_t FileLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

bool Watch(int epoll_fd, int operation, int fd, unsigned events, std::uint64_t name) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return epoll_ctl(epoll_fd, operation, fd, &event) == 0;
}

// How many bytes of an incomplete request's rest are read in the same turn: all of a large one, or
// what is there of a small one. Other clients wait for one operation only.
std::size_t PartToRead(int fd, const WorkerSocket::Received& received) {
  int available = 0;
  if (received.missing < kTurnBytes || ioctl(fd, FIONREAD, &available) != 0) return 0;
  const std::size_t part = std::min(received.missing, static_cast<std::size_t>(available));
  if (received.room > 0) return part == received.missing && part <= kReadBytes ? part : 0;
  return part >= kTurnBytes ? std::min(part, kSmallRequestBytes) : 0;
}

}  // namespace

absl::Status WorkerSocket::Listen(const std::string& path) {
  auto listener = ListenOnPath(path);
  if (!listener.ok()) return listener.status();
  absl::MutexLock lock(&mutex_);
  listener_ = *std::move(listener);
  chmod(path.c_str(), S_IRUSR | S_IWUSR);
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (wake_.fd() < 0) wake_ = EventFd();
  last_worker_ = kFirstWorker;
  if (!epoll_.valid() || wake_.fd() < 0 ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, listener_.fd.get(), EPOLLIN, kListener) ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, wake_.fd(), EPOLLIN, kWaker)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve the unix socket ", path, ": ", ErrnoText(errno)));
  }
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

absl::Status WorkerSocket::EnsureListening() {
  absl::MutexLock lock(&mutex_);
  if (access(listener_.address.c_str(), F_OK) == 0) return absl::OkStatus();
  auto listener = ListenOnPath(listener_.address);
  if (!listener.ok()) return listener.status();
  chmod(listener->address.c_str(), S_IRUSR | S_IWUSR);
  if (!Watch(epoll_.get(), EPOLL_CTL_ADD, listener->fd.get(), EPOLLIN, kListener)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve the unix socket ", listener->address, ": ", ErrnoText(errno)));
  }
  listener_ = *std::move(listener);  // the old one leaves epoll as it is closed
  return absl::OkStatus();
}

absl::Status WorkerSocket::ServeTcp(ListeningSocket listener) {
  absl::MutexLock lock(&mutex_);
  if (!Watch(epoll_.get(), EPOLL_CTL_ADD, listener.fd.get(), EPOLLIN, kTcpListener)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve port ", listener.port, ": ", ErrnoText(errno)));
  }
  tcp_listener_ = std::move(listener);
  tcp_streams_max_ = std::min(kTcpStreamsMax, FileLimit() / 2);
  return absl::OkStatus();
}

void WorkerSocket::Stop() {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
  }
  std::vector<StoreWorker> left;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& entry : streams_) left.push_back(entry.first);
  }
  for (const StoreWorker worker : left) Close(worker);
  {
    absl::MutexLock lock(&mutex_);
    if (listener_.fd.valid()) unlink(listener_.address.c_str());
    listener_ = {};
    tcp_listener_ = {};
  }
  epoll_.Reset();
}

int WorkerSocket::Patience(std::optional<TimePoint> due) const {
  due = Earliest({due, accept_again_});
  if (!due) return -1;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*due - Now());
  return static_cast<int>(std::clamp<std::int64_t>(rest.count(), 0, 3'600'000));
}

bool WorkerSocket::IsStopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void WorkerSocket::Loop() {
  std::array<epoll_event, 128> events;
  std::optional<TimePoint> due;
  // Asked after the waker was cleared and before the wait: Stop() wakes once.
  while (!IsStopping()) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), Patience(due));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kListener || event.data.u64 == kTcpListener) {
        Accept(event.data.u64 == kTcpListener);
      } else if (event.data.u64 == kWaker) {
        wake_.Clear();
      } else {
        OnEvent(StoreWorker{event.data.u64}, event.events);
      }
    }
    if (accept_again_ && *accept_again_ <= Now()) ListenAgain();
    CloseStalled();
    CloseUnread();
    CloseSilent();
    due = Earliest({handlers_.on_idle(), room_due_, unread_due_});
    if (!silent_.empty()) due = Earliest({due, silent_.front().first});
  }
}

void WorkerSocket::Accept(bool tcp) {
  OwnedFd fd;
  {
    absl::MutexLock lock(&mutex_);
    const int listener = tcp ? tcp_listener_.fd.get() : listener_.fd.get();
    fd = OwnedFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (IsOutOfResources(errno)) Pause();
      return;
    }
    if (streams_.size() >= kWorkerStreamsMax || (tcp && tcp_streams_ >= tcp_streams_max_)) return;
  }
  Admit(std::move(fd), tcp);
}

// A worker whose socket is closed here sees it and connects again.
void WorkerSocket::Admit(OwnedFd fd, bool tcp) {
  const StoreWorker worker{++last_worker_};
  // The unix socket's folder should admit only the agent's user; this does not rely on it.
  if (!tcp && !IsOwnUser(fd.get())) return;
  const Admission admission = handlers_.on_client(worker, fd.get(), tcp);
  if (admission == Admission::kRefused) return;
  const bool held = admission == Admission::kHeld;
  const int on = 1;
  if (tcp) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  {
    absl::MutexLock lock(&mutex_);
    // If the client is held, only its end is wanted.
    if (Watch(epoll_.get(), EPOLL_CTL_ADD, fd.get(), held ? EPOLLRDHUP : EPOLLIN, last_worker_)) {
      streams_.emplace(worker, std::make_shared<Stream>(fd.Release(), tcp, held, unread_));
      if (!tcp) return;
      ++tcp_streams_;
      silent_.emplace_back(Now() + kFirstMessageTimeout, worker);
      return;
    }
  }
  handlers_.on_gone(worker);
}

bool WorkerSocket::WatchListenersLocked(unsigned events) {
  return Watch(epoll_.get(), EPOLL_CTL_MOD, listener_.fd.get(), events, kListener) &&
         (!tcp_listener_.fd.valid() ||
          Watch(epoll_.get(), EPOLL_CTL_MOD, tcp_listener_.fd.get(), events, kTcpListener));
}

// Ignores the listeners in epoll for kAcceptPause.
void WorkerSocket::Pause() {
  WatchListenersLocked(0);
  accept_again_ = Now() + kAcceptPause;
}

void WorkerSocket::ListenAgain() {
  absl::MutexLock lock(&mutex_);
  accept_again_.reset();
  if (!WatchListenersLocked(EPOLLIN)) accept_again_ = Now() + kAcceptPause;
}

std::shared_ptr<WorkerSocket::Stream> WorkerSocket::Find(StoreWorker worker) {
  absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(worker);
  return it == streams_.end() ? nullptr : it->second;
}

void WorkerSocket::OnEvent(StoreWorker worker, unsigned events) {
  const std::shared_ptr<Stream> stream = Find(worker);
  if (stream == nullptr) return;
  bool alive = (events & EPOLLRDHUP) == 0;
  if (alive && (events & EPOLLOUT) != 0) {
    bool all_read = false;
    {
      absl::MutexLock lock(&stream->mutex);
      const bool unread = !stream->out.empty();
      alive = stream->out.Send(stream->fd, {}, Now());
      all_read = unread && stream->out.empty();
      WatchLocked(worker, *stream);
    }
    if (alive && all_read) handlers_.on_read(worker);
  }
  if (alive && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) alive = Read(worker, *stream);
  if (!alive) Close(worker);
}

// Bytes that a client has sent ahead stay with the kernel: more than kTurnBytes at a time are read
// for a request that has room, or for the rest of one.
//
// The descriptor is closed on this thread only, so it may be used without the lock.
bool WorkerSocket::Read(StoreWorker worker, Stream& stream) {
  int fd = -1;
  {
    absl::MutexLock lock(&stream.mutex);
    fd = stream.fd;
  }
  std::array<char, kReadBytes> bytes;
  std::size_t size = stream.room > 0 ? bytes.size() : kTurnBytes;
  while (size > 0) {
    const ssize_t got = recv(fd, bytes.data(), size, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    const Received received =
        handlers_.on_bytes(worker, std::string_view(bytes.data(), static_cast<std::size_t>(got)));
    if (!received.open) return false;
    stream.part_read += static_cast<std::size_t>(got);
    if (stream.part_read >= stream.room / kRequestParts) {
      stream.part_read = 0;
      stream.room_since = Now();
    }
    stream.greeted |= received.greeted;
    if (received.room == 0) ReleaseRoom(stream);
    if (stream.room > 0) return true;
    size = PartToRead(fd, received);
    if (size == 0 && received.room > 0) TakeRoom(worker, stream, received.room);
  }
  return true;
}

// The memory of incomplete requests is bounded: one that finds no room is not read on.
void WorkerSocket::TakeRoom(StoreWorker worker, Stream& stream, std::size_t bytes) {
  const bool fits = room_ + bytes <= kRequestRoomBytes;
  if (fits) {
    room_ += bytes;
    stream.room = bytes;
    stream.room_since = Now();
    stream.part_read = 0;
  } else {
    wait_for_room_.emplace_back(worker, bytes);
  }
  absl::MutexLock lock(&stream.mutex);
  stream.waits_for_room = !fits;
  WatchLocked(worker, stream);
}

void WorkerSocket::ReleaseRoom(Stream& stream) {
  if (stream.room == 0) return;
  room_ -= std::exchange(stream.room, 0);
  // The newest first, since stalled ones are the oldest.
  while (!wait_for_room_.empty() && room_ + wait_for_room_.back().second <= kRequestRoomBytes) {
    const auto [next, bytes] = wait_for_room_.back();
    wait_for_room_.pop_back();
    if (const std::shared_ptr<Stream> waiter = Find(next)) TakeRoom(next, *waiter, bytes);
  }
}

// Closes streams whose request has stalled while others wait for room: no further part of it came
// in time. On a busy machine a whole one may take long.
void WorkerSocket::CloseStalled() {
  room_due_.reset();
  if (wait_for_room_.empty()) return;
  const TimePoint now = Now();
  std::vector<StoreWorker> stalled;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [worker, stream] : streams_) {
      if (stream->room == 0) continue;
      const TimePoint due = stream->room_since + kRequestRoomTimeout;
      if (due <= now) {
        stalled.push_back(worker);
      } else {
        room_due_ = Earliest({room_due_, due});
      }
    }
  }
  for (const StoreWorker worker : stalled) Close(worker);
  if (!stalled.empty()) room_due_ = now;  // look again
}

// While unread replies take too much memory, closes those whose clients are the furthest behind.
void WorkerSocket::CloseUnread() {
  if (!IsFull()) return unread_due_.reset();
  const TimePoint now = Now();
  if (unread_due_ && now < *unread_due_) return;
  std::vector<std::pair<TimePoint, StoreWorker>> unread;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [worker, stream] : streams_) {
      absl::MutexLock stream_lock(&stream->mutex);
      if (!stream->out.empty()) unread.emplace_back(stream->out.kept_up_until(), worker);
    }
  }
  std::sort(unread.begin(), unread.end());
  for (const auto& [kept_up_until, worker] : unread) {
    if (!IsFull()) return unread_due_.reset();
    unread_due_ = kept_up_until + kUnreadReplyTimeout;
    if (*unread_due_ > now) return;
    Close(worker);
  }
  unread_due_ = now;
}

// Whoever connects and says nothing gives the place up to another.
void WorkerSocket::CloseSilent() {
  const TimePoint now = Now();
  while (!silent_.empty() && silent_.front().first <= now) {
    const StoreWorker worker = silent_.front().second;
    silent_.pop_front();
    const std::shared_ptr<Stream> stream = Find(worker);
    if (stream != nullptr && !stream->greeted) Close(worker);
  }
}

void WorkerSocket::Close(StoreWorker worker) {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    auto node = streams_.extract(worker);
    if (!node) return;
    stream = std::move(node.mapped());
    if (stream->tcp) --tcp_streams_;
  }
  {
    absl::MutexLock lock(&stream->mutex);
    close(std::exchange(stream->fd, -1));
    stream->out.Clear();
  }
  ReleaseRoom(*stream);
  handlers_.on_gone(worker);
}

bool WorkerSocket::Send(StoreWorker worker, std::vector<StoreValue> pieces) {
  const std::shared_ptr<Stream> stream = Find(worker);
  if (stream == nullptr) return true;
  absl::MutexLock lock(&stream->mutex);
  if (stream->fd < 0) return true;
  const bool idle = stream->out.empty();
  // A stream that cannot be written has ended; the loop notices that when it reads.
  const bool open = stream->out.Send(stream->fd, std::move(pieces), Now());
  if (idle && open && stream->out.empty()) return true;
  WatchLocked(worker, *stream);
  if (IsFull()) Wake();
  return stream->out.empty();
}

bool WorkerSocket::IsFull() const { return unread_.total() > kUnreadReplyBytesMax; }

void WorkerSocket::Hold(StoreWorker worker, bool held) {
  const std::shared_ptr<Stream> stream = Find(worker);
  if (stream == nullptr) return;
  absl::MutexLock lock(&stream->mutex);
  if (stream->fd < 0 || stream->held == held) return;
  stream->held = held;
  WatchLocked(worker, *stream);
}

void WorkerSocket::End(StoreWorker worker) {
  const std::shared_ptr<Stream> stream = Find(worker);
  if (stream == nullptr) return;
  absl::MutexLock lock(&stream->mutex);
  if (stream->fd < 0) return;
  stream->held = false;  // the loop sees the end as it reads
  WatchLocked(worker, *stream);
  shutdown(stream->fd, SHUT_RDWR);
}

void WorkerSocket::WatchLocked(StoreWorker worker, Stream& stream) {
  const bool reading = !stream.waits_for_room && !stream.held;
  const unsigned events = (reading ? EPOLLIN : 0u) | (stream.out.empty() ? 0u : EPOLLOUT);
  // Without epoll the replies could not be sent; the worker and this thread see the end.
  if (!Watch(epoll_.get(), EPOLL_CTL_MOD, stream.fd, events, static_cast<std::uint64_t>(worker)))
    shutdown(stream.fd, SHUT_RDWR);
}

}  // namespace ddprun
