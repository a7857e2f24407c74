// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/resolve.h"
#include "rendezvous/session_client.h"

namespace ddprun {
namespace {

class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<AddrInfoPtr> ResolveOrSay(const std::string& host, int port, int type, int flags) {
  int error = 0;
  AddrInfoPtr list = Resolve(host, port, type, flags, &error);
  if (list != nullptr) return list;
  return absl::UnavailableError(absl::StrCat("cannot resolve '", host, "': ", gai_strerror(error)));
}

std::string ToText(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

}  // namespace

bool IsNumericAddress(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

std::string HostPort(const std::string& host, int port) {
  const bool bare_v6 = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
  return bare_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<std::string> CheckBindable(const std::string& host, int port) {
  auto list = ResolveOrSay(host, port, SOCK_STREAM, AI_PASSIVE);
  if (!list.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", HostPort(host, port), ": ", list.status().message()));
  }
  const addrinfo& first = **list;
  const Socket probe(first.ai_family, SOCK_STREAM);
  const int on = 1;
  // As gRPC does it: connections of a server that has just ended must not hold up the next one.
  setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (probe.fd() >= 0 && bind(probe.fd(), first.ai_addr, first.ai_addrlen) == 0 &&
      listen(probe.fd(), 1) == 0) {
    return ToText(first.ai_addr, first.ai_addrlen);
  }
  const int error = errno;
  const std::string where = absl::StrCat("cannot listen on ", HostPort(host, port), ": ");
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(
        where, "the port is in use; end the program that has it or choose another port"));
  }
  if (error == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "that is not an address of this host; give one of its own"));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(where, "permission denied; choose a port of 1024 or more"));
  }
  return absl::InvalidArgumentError(absl::StrCat(where, std::strerror(error)));
}

absl::Status CheckSocketPath(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path '", path, "' has ", path.size(),
                                                   " bytes; it must have 1 to ",
                                                   sizeof address.sun_path - 1));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Socket probe(AF_UNIX, SOCK_STREAM);
  const bool dead =
      S_ISSOCK(info.st_mode) &&
      connect(probe.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (dead)
    return absl::OkStatus();  // left by a process that was killed; gRPC removes it before it binds
  return absl::AlreadyExistsError(absl::StrCat("cannot listen on the unix socket ", path,
                                               ": the path is taken; remove it or choose another"));
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port) {
  auto list = ResolveOrSay(host, port, SOCK_DGRAM, 0);
  if (!list.ok()) return list.status();
  int error = 0;
  for (const addrinfo* entry = list->get(); entry != nullptr; entry = entry->ai_next) {
    // Connecting a datagram socket sends nothing: it asks the kernel which way it would go.
    const Socket probe(entry->ai_family, SOCK_DGRAM);
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    auto* address = reinterpret_cast<sockaddr*>(&local);
    if (connect(probe.fd(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(probe.fd(), address, &length) == 0) {
      return ToText(address, length);
    }
    error = errno;
  }
  return absl::UnavailableError(absl::StrCat("there is no way from this host to ",
                                             HostPort(host, port), ": ", std::strerror(error),
                                             "; check the address and the network"));
}

absl::StatusOr<int> FindFreePort(const std::string& address) {
  auto list = ResolveOrSay(address, 0, SOCK_STREAM, 0);
  if (!list.ok()) return list.status();
  const Socket probe((*list)->ai_family, SOCK_STREAM);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (bind(probe.fd(), (*list)->ai_addr, (*list)->ai_addrlen) != 0 ||
      getsockname(probe.fd(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("there is no free port at ", address, ": ", std::strerror(errno)));
  }
  if (local.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&local)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&local)->sin_port);
}

}  // namespace ddprun
