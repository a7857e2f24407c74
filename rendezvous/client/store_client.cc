// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/store_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = 64 * 1024;
// How long a read of the socket waits; for less than that poll() does.
constexpr std::chrono::seconds kReadPatience{1};

class AgentStoreClient final : public StoreClient {
 public:
  AgentStoreClient(Options options, int fd) : options_(std::move(options)), fd_(fd) {
    const timeval patience{kReadPatience.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    v1::StoreRequests greeting;
    *greeting.mutable_hello() = ToProto(StoreHello{});
    WriteFrame(ToFrame(greeting));
  }
  ~AgentStoreClient() override { close(fd_); }

  StoreResult Call(StoreOp op) override {
    const milliseconds timeout =
        std::clamp<milliseconds>(op.timeout, milliseconds{0}, milliseconds(kStoreTimeoutMax));
    Waiting call;
    std::uint64_t id = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (!end_.ok()) return ErrorResult(end_);
      id = ++last_id_;
      calls_.emplace(id, &call);
    }
    op.round = options_.round;
    Write({{{id, std::move(op)}}, {}});
    // A hung agent must not block the worker forever.
    const milliseconds patience = timeout + milliseconds(kStoreAnswerSlack);
    if (Wait(call, std::chrono::steady_clock::now() + patience)) return std::move(call.result);
    {
      absl::MutexLock lock(&mutex_);
      calls_.erase(id);
    }
    Write({{{id, std::nullopt}}, {}});
    return ErrorResult(absl::DeadlineExceededError(absl::StrCat(
        "the store at ", options_.target, " did not answer within ", patience.count(), " ms")));
  }

 private:
  struct Waiting {
    bool answered = false;
    StoreResult result;
    absl::CondVar changed;  // answered, or no thread reads
  };

  void Write(StoreBatch batch) {
    v1::StoreRequests message;
    AddTo(&message, std::move(batch));
    WriteFrame(ToFrame(message));
  }

  // A failure ends the connection, so that the reading thread reports it.
  void WriteFrame(const std::string& frame) {
    absl::MutexLock lock(&write_mutex_);
    std::size_t written = 0;
    while (written < frame.size()) {
      const ssize_t sent = send(fd_, frame.data() + written, frame.size() - written, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) {
        shutdown(fd_, SHUT_RDWR);
        return;
      }
      written += static_cast<std::size_t>(sent);
    }
  }

  bool Wait(Waiting& call, TimePoint deadline) {
    absl::MutexLock lock(&mutex_);
    while (!call.answered) {
      const auto rest = deadline - std::chrono::steady_clock::now();
      if (rest <= rest.zero()) break;
      if (reading_) {
        call.changed.WaitWithTimeout(&mutex_, absl::FromChrono(rest));
        continue;
      }
      reading_ = true;
      mutex_.Unlock();
      std::vector<StoreReply> replies;
      const absl::Status status = Read(rest, &replies);
      mutex_.Lock();
      reading_ = false;
      Deliver(std::move(replies), status);
    }
    // Another waiting thread must read now.
    if (!reading_ && !calls_.empty()) calls_.begin()->second->changed.Signal();
    return call.answered;
  }

  // By one thread at a time.
  absl::Status Read(Duration patience, std::vector<StoreReply>* replies) {
    int flags = 0;  // comes back after kReadPatience
    if (patience < kReadPatience) {
      pollfd ready{fd_, POLLIN, 0};
      const auto limit = std::chrono::ceil<milliseconds>(patience);
      if (poll(&ready, 1, static_cast<int>(limit.count())) == 0) return absl::OkStatus();
      flags = MSG_DONTWAIT;
    }
    const auto [to, room] = in_.Room(kReadBytes);
    const ssize_t got = recv(fd_, to, room, flags);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    if (got <= 0) return Gone(got == 0 ? "it was closed" : std::strerror(errno));
    in_.Taken(static_cast<std::size_t>(got));
    std::string_view frame;
    while (in_.Next(&frame)) {
      v1::StoreReplies message;
      if (!message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
        return Gone("it sent bytes that are not a message of the store");
      }
      for (StoreReply& reply : FromProto(std::move(message))) {
        if (reply.id == 0 && !reply.result.status.ok()) return reply.result.status;
        replies->push_back(std::move(reply));
      }
    }
    return in_.too_long() ? Gone("its message is too long") : absl::OkStatus();
  }

  absl::Status Gone(const char* reason) const {
    return absl::UnavailableError(
        absl::StrCat("the connection to the store at ", options_.target, " is gone: ", reason));
  }

  void Deliver(std::vector<StoreReply> replies, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (StoreReply& reply : replies) {
      auto node = calls_.extract(reply.id);
      if (!node) continue;
      node.mapped()->result = std::move(reply.result);
      node.mapped()->answered = true;
      node.mapped()->changed.Signal();
    }
    if (status.ok()) return;
    end_ = status;
    for (const auto& entry : calls_) {
      entry.second->result.status = end_;
      entry.second->answered = true;
      entry.second->changed.Signal();
    }
    calls_.clear();
  }

  const Options options_;
  const int fd_;
  absl::Mutex write_mutex_;
  FrameReader in_;  // used by the thread that set reading_

  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::uint64_t, Waiting*> calls_
      ABSL_GUARDED_BY(mutex_);  // on their callers' stacks
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<StoreClient>> StoreClient::Connect(Options options) {
  const std::string path(absl::StripPrefix(options.target, "unix:"));
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  const TimePoint deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  auto pause = kConnectBackoffMin;
  while (true) {
    OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) {
      return std::make_shared<AgentStoreClient>(std::move(options), fd.Release());
    }
    const auto rest = deadline - std::chrono::steady_clock::now();
    if (rest <= rest.zero()) break;
    std::this_thread::sleep_for(std::min<Duration>(pause, rest));
    pause = std::min(2 * pause, kConnectBackoffMax);
  }
  return absl::UnavailableError(
      absl::StrCat("nothing answers at the store's address ", options.target, " within ",
                   std::chrono::duration<double>(options.connect_timeout).count(),
                   " s; check that its agent runs"));
}

}  // namespace ddprun
