// SPDX-License-Identifier: Apache-2.0
#include "launcher/notices/http_request.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {
namespace {

absl::Status Failed(const std::string& why) { return absl::UnavailableError(why); }

// False: the deadline has passed.
bool Await(int fd, short events, TimePoint deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

absl::StatusOr<OwnedFd> Connect(const Endpoint& server, TimePoint deadline) {
  const AddrInfoPtr addresses = Resolve(server.host, server.port, SOCK_STREAM, 0);
  if (addresses == nullptr) return Failed("its name is not known here");
  OwnedFd fd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Failed(ErrnoText(errno));
  if (connect(fd.get(), addresses->ai_addr, addresses->ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return Failed(ErrnoText(errno));
  if (!Await(fd.get(), POLLOUT, deadline)) return Failed("no answer in time");
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Failed(ErrnoText(error));
  return fd;
}

absl::Status SendAll(int fd, absl::string_view text, TimePoint deadline) {
  while (!text.empty()) {
    if (!Await(fd, POLLOUT, deadline)) return Failed("it takes no request");
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Failed(ErrnoText(errno));
  }
  return absl::OkStatus();
}

absl::StatusOr<HttpAnswer> Receive(int fd, TimePoint deadline) {
  std::string bytes;
  std::array<char, 4096> part;
  while (bytes.size() <= kHttpAnswerBytesMax) {
    if (!Await(fd, POLLIN, deadline)) return Failed("no answer in time");
    const ssize_t received = recv(fd, part.data(), part.size(), 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (received < 0) return Failed(ErrnoText(errno));
    bytes.append(part.data(), static_cast<std::size_t>(received));
    absl::StatusOr<std::optional<HttpAnswer>> answer = ParseHttpAnswer(bytes, received == 0);
    if (!answer.ok()) return Failed(std::string(answer.status().message()));
    if (answer->has_value()) return **std::move(answer);
  }
  return Failed(absl::StrCat("its answer has more than ", kHttpAnswerBytesMax, " bytes"));
}

}  // namespace

absl::StatusOr<HttpAnswer> SendHttp(const Endpoint& server, const HttpRequest& request) {
  const TimePoint deadline = std::chrono::steady_clock::now() + request.timeout;
  const absl::StatusOr<OwnedFd> fd = Connect(server, deadline);
  if (!fd.ok()) return fd.status();
  std::string text =
      absl::StrCat(request.method, " ", request.target, " HTTP/1.1\r\nHost: ", EndpointText(server),
                   "\r\nConnection: close\r\n");
  if (request.method != "GET") absl::StrAppend(&text, "Content-Length: 0\r\n");
  for (const auto& [name, value] : request.headers)
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  absl::StrAppend(&text, "\r\n");
  if (absl::Status sent = SendAll(fd->get(), text, deadline); !sent.ok()) return sent;
  return Receive(fd->get(), deadline);
}

}  // namespace ddprun
