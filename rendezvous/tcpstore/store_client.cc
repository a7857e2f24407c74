// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tcpstore/store_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/version.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/backoff.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/tcpstore/protocol.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using tcpstore::Opcode;
using tcpstore::ReplyShape;

// How long a call on the socket waits before it looks at the time. Not by poll(), which fails in a
// process that may have no more files (RLIMIT_NOFILE).
constexpr std::chrono::seconds kPatience{1};

template <typename T>
void Put(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void PutBytes(std::string& out, const std::string& bytes) {
  Put<std::uint64_t>(out, bytes.size());
  out += bytes;
}

std::string Hello() {
  std::string out;
  Put(out, Opcode::kValidate);
  Put(out, tcpstore::kMagic);
  return out;
}

// INVALID_ARGUMENT: other keys and values than the verb takes.
absl::StatusOr<std::string> RequestOf(const StoreOp& op, RoundId round, milliseconds timeout) {
  if (!tcpstore::HasFieldsOfItsVerb(op)) {
    return absl::InvalidArgumentError(absl::StrCat("a store operation came with ", op.keys.size(),
                                                   " keys and ", op.values.size(),
                                                   " values, which does not fit it"));
  }
  std::string out;
  Put(out, Opcode::kTerms);
  Put<std::uint32_t>(out, kProtocolVersion);
  Put<std::uint64_t>(out, ToNumber(round));
  Put<std::int64_t>(out, timeout.count());
  const tcpstore::RequestKind* const kind = tcpstore::FindKind(op.verb);
  Put(out, kind->opcode);
  std::string_view fields = kind->fields;
  std::size_t times = 1;
  if (!fields.empty() && fields[0] == '*') {
    times = op.keys.size();
    Put<std::uint64_t>(out, times);
    fields.remove_prefix(1);
  }
  auto key = op.keys.begin();
  auto value = op.values.begin();
  for (; times > 0; --times) {
    for (const char field : fields) {
      if (field == 'k') PutBytes(out, *key++);
      if (field == 'v') PutBytes(out, *value++);
      if (field == 'n') Put<std::int64_t>(out, op.number);
    }
  }
  return out;
}

// A connection while one request is answered. Every step ends at the deadline.
class Exchange {
 public:
  Exchange(int fd, TimePoint deadline) : fd_(fd), deadline_(deadline) {}

  // OK, DEADLINE_EXCEEDED, or UNAVAILABLE with what happened to the connection.
  const absl::Status& status() const { return status_; }

  // An agent that rejects a request while it is sent has written why.
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno == EPIPE || errno == ECONNRESET) {
        return;
      } else if (!GoesOn()) {
        return;
      }
    }
  }

  StoreResult Receive(StoreVerb verb, std::size_t keys) {
    StoreResult result;
    const auto code = static_cast<absl::StatusCode>(Number<std::uint8_t>());
    if (status_.ok() && code != absl::StatusCode::kOk) {
      const std::string message = Bytes();
      if (status_.ok()) return ErrorResult(absl::Status(code, message));
    }
    if (status_.ok()) ReceiveResult(verb, keys, result);
    if (!status_.ok()) return ErrorResult(status_);
    return result;
  }

 private:
  void ReceiveResult(StoreVerb verb, std::size_t keys, StoreResult& result) {
    switch (tcpstore::FindKind(verb)->reply) {
      case ReplyShape::kNone:
        return;
      case ReplyShape::kByte: {
        const bool ready = Number<std::uint8_t>() == tcpstore::kReady;
        if (verb == StoreVerb::kCheck) result.number = ready ? 1 : 0;
        return;
      }
      case ReplyShape::kNumber:
        result.number = Number<std::int64_t>();
        return;
      case ReplyShape::kPopped:
        Number<std::int64_t>();
        result.values.push_back(Bytes());
        return;
      case ReplyShape::kValues:
        for (; keys > 0 && status_.ok(); --keys) result.values.push_back(Bytes());
        return;
      case ReplyShape::kKeys:
        for (auto left = Number<std::int64_t>(); left > 0 && status_.ok(); --left)
          result.keys.push_back(Bytes());
        return;
    }
  }

  template <typename T>
  T Number() {
    T number{};
    Read(reinterpret_cast<char*>(&number), sizeof number);
    return number;
  }

  std::string Bytes() {
    const auto size = Number<std::uint64_t>();
    if (status_.ok() && size > kMessageBytesMax)
      status_ = absl::UnavailableError("it sent bytes that are no reply of the store");
    std::string bytes(status_.ok() ? static_cast<std::size_t>(size) : 0, '\0');
    Read(bytes.data(), bytes.size());
    return bytes;
  }

  void Read(char* to, std::size_t size) {
    while (size > 0 && status_.ok()) {
      std::size_t count = std::min(size, end_ - begin_);
      if (count > 0) {
        std::memcpy(to, buffer_ + begin_, count);
        begin_ += count;
      } else if (size >= sizeof buffer_) {
        count = Take(to, size);
      } else {
        begin_ = 0;
        end_ = Take(buffer_, sizeof buffer_);
      }
      to += count;
      size -= count;
    }
  }

  // Reads what is there; 0: nothing, or status() is not OK.
  std::size_t Take(char* to, std::size_t size) {
    const ssize_t got = recv(fd_, to, size, 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) {
      status_ = absl::UnavailableError("it was closed");
    } else {
      GoesOn();
    }
    return 0;
  }

  // After a call that failed: whether to try again.
  bool GoesOn() {
    if (errno == EINTR) return true;
    if (errno != EAGAIN) {
      status_ = absl::UnavailableError(ErrnoText(errno));
    } else if (std::chrono::steady_clock::now() >= deadline_) {
      status_ = absl::DeadlineExceededError("");
    }
    return status_.ok();
  }

  const int fd_;
  const TimePoint deadline_;
  absl::Status status_;
  char buffer_[4096];
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Nothing was written to it, nor was it closed, since the last reply.
bool IsQuiet(int fd) {
  char byte = 0;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

}  // namespace

absl::StatusOr<OwnedFd> StoreClient::Open() const {
  const absl::StatusOr<sockaddr_un> address =
      UnixAddress(std::string(absl::StripPrefix(options_.target, "unix:")));
  if (!address.ok()) return address.status();
  OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{kPatience.count(), 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0)
    return fd;
  const bool later = errno == EAGAIN;  // too many wait to be accepted
  const std::string reason = ErrnoText(errno);
  return later ? absl::ResourceExhaustedError(reason) : absl::UnavailableError(reason);
}

absl::StatusOr<OwnedFd> StoreClient::TakeConnection(TimePoint deadline) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!idle_.empty()) {
      OwnedFd fd = std::move(idle_.back());
      idle_.pop_back();
      if (IsQuiet(fd.get())) return fd;
    }
  }
  absl::StatusOr<OwnedFd> fd = Open();
  while (absl::IsResourceExhausted(fd.status()) && std::chrono::steady_clock::now() < deadline)
    fd = Open();
  if (!fd.ok()) return fd.status();
  Exchange exchange(fd->get(), deadline);
  exchange.Send(Hello());
  if (!exchange.status().ok()) return exchange.status();
  return fd;
}

absl::Status StoreClient::Late(milliseconds patience) const {
  return absl::DeadlineExceededError(absl::StrCat(
      "the store at ", options_.target, " did not answer within ", patience.count(), " ms"));
}

StoreResult StoreClient::Call(StoreOp op) {
  const milliseconds timeout =
      std::clamp<milliseconds>(op.timeout, milliseconds{0}, milliseconds(kStoreTimeoutMax));
  // A hung agent must not block the worker forever.
  const milliseconds patience = timeout + milliseconds(kStoreAnswerSlack);
  const TimePoint deadline = std::chrono::steady_clock::now() + patience;
  const absl::StatusOr<std::string> request = RequestOf(op, options_.round, timeout);
  if (!request.ok()) return ErrorResult(request.status());
  absl::StatusOr<OwnedFd> fd = TakeConnection(deadline);
  absl::Status broken = fd.status();
  StoreResult result;
  if (fd.ok()) {
    Exchange exchange(fd->get(), deadline);
    exchange.Send(*request);
    if (exchange.status().ok()) result = exchange.Receive(op.verb, op.keys.size());
    broken = exchange.status();
  }
  if (broken.ok()) {
    // The agent closes some of those that it rejects a request of.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (result.status.ok()) idle_.push_back(*std::move(fd));
    return result;
  }
  if (absl::IsDeadlineExceeded(broken) || absl::IsResourceExhausted(broken))
    return ErrorResult(Late(patience));
  return ErrorResult(absl::UnavailableError(absl::StrCat(
      "the connection to the store at ", options_.target, " is gone: ", broken.message())));
}

absl::StatusOr<std::shared_ptr<StoreClient>> StoreClient::Connect(Options options) {
  const TimePoint deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  std::shared_ptr<StoreClient> client(new StoreClient(std::move(options)));
  Backoff backoff;
  while (true) {
    absl::StatusOr<OwnedFd> fd = client->TakeConnection(deadline);
    if (fd.ok()) {
      client->idle_.push_back(*std::move(fd));
      return client;
    }
    if (absl::IsInvalidArgument(fd.status())) return fd.status();
    const auto rest = deadline - std::chrono::steady_clock::now();
    if (rest <= rest.zero()) break;
    std::this_thread::sleep_for(std::min<Duration>(backoff.Next(kConnectBackoffMax), rest));
  }
  return absl::UnavailableError(
      absl::StrCat("nothing answers at the store's address ", client->options_.target, " within ",
                   std::chrono::duration<double>(client->options_.connect_timeout).count(),
                   " s; check that its agent runs"));
}

}  // namespace ddprun
