// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
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
#include "proto/text.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {
namespace {

OwnedFd NewSocket(int family, int type) { return OwnedFd(socket(family, type | SOCK_CLOEXEC, 0)); }

absl::StatusOr<AddrInfoPtr> ResolveOrSay(const std::string& host, int port, int type, int flags) {
  int error = 0;
  errno = 0;
  AddrInfoPtr list = Resolve(host, port, type, flags, &error);
  if (list != nullptr) return list;
  // Without a free descriptor the name service cannot work; getaddrinfo() then reports an unknown
  // name or a system error.
  if (IsOutOfDescriptors(errno)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot resolve '", host, "': ", ErrnoText(errno)));
  }
  return absl::UnavailableError(absl::StrCat("cannot resolve '", host, "': ", gai_strerror(error)));
}

bool IsLinkLocal(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16 == 0xA9FE;
}

// Port of a bound socket; 0 if it has none.
int PortOf(int fd) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) return 0;
  return ntohs(local.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&local)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&local)->sin_port);
}

}  // namespace

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return address->sa_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
}

std::string NumericAddress(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

bool IsNumericAddress(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

absl::StatusOr<ListeningSocket> ListenOn(const std::string& host, int port) {
  auto list = ResolveOrSay(host, port, SOCK_STREAM, AI_PASSIVE);
  if (!list.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", HostPort(host, port), ": ", list.status().message()));
  }
  const addrinfo& first = **list;
  OwnedFd listener = NewSocket(first.ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  const int on = 1;
  // Connections of a server that has just ended must not block the next one.
  if (listener.valid()) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener.valid() && bind(listener.get(), first.ai_addr, first.ai_addrlen) == 0 &&
      listen(listener.get(), SOMAXCONN) == 0) {
    const int bound_port = PortOf(listener.get());
    return ListeningSocket{std::move(listener), NumericAddress(first.ai_addr, first.ai_addrlen),
                           bound_port};
  }
  const int error = errno;
  const std::string where = absl::StrCat("cannot listen on ", HostPort(host, port), ": ");
  if (IsOutOfDescriptors(error)) {
    return absl::ResourceExhaustedError(absl::StrCat(where, ErrnoText(error)));
  }
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

namespace {

absl::Status CannotListenOnPath(const std::string& path, int error) {
  const std::string what =
      absl::StrCat("cannot listen on the unix socket ", path, ": ", ErrnoText(error));
  if (IsOutOfDescriptors(error)) return absl::ResourceExhaustedError(what);
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; check that its folder exists and can be written"));
}

absl::Status CheckIsFree(const std::string& path, const sockaddr_un& address) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  const OwnedFd probe = NewSocket(AF_UNIX, SOCK_STREAM);
  if (!probe.valid()) return CannotListenOnPath(path, errno);
  const bool dead =
      S_ISSOCK(info.st_mode) &&
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (dead) return absl::OkStatus();  // left by a process that was killed
  return absl::AlreadyExistsError(absl::StrCat("cannot listen on the unix socket ", path,
                                               ": the path is taken; remove it or choose another"));
}

}  // namespace

absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path '", path, "' has ", path.size(),
                                                   " bytes; it must have 1 to ",
                                                   sizeof address.sun_path - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

absl::StatusOr<ListeningSocket> ListenOnPath(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  if (absl::Status status = CheckIsFree(path, *address); !status.ok()) return status;
  unlink(path.c_str());
  OwnedFd listener = NewSocket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return CannotListenOnPath(path, errno);
  }
  return ListeningSocket{std::move(listener), path, 0};
}

bool IsOwnUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port) {
  auto list = ResolveOrSay(host, port, SOCK_DGRAM, 0);
  if (!list.ok()) return list.status();
  int error = 0;
  for (const addrinfo* entry = list->get(); entry != nullptr; entry = entry->ai_next) {
    // Connecting a datagram socket sends nothing; it makes the kernel choose a route.
    const OwnedFd probe = NewSocket(entry->ai_family, SOCK_DGRAM);
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    auto* address = reinterpret_cast<sockaddr*>(&local);
    if (!probe.valid() && IsOutOfDescriptors(errno)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot find the way from this host to ", HostPort(host, port), ": ", ErrnoText(errno)));
    }
    if (connect(probe.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(probe.get(), address, &length) == 0) {
      return NumericAddress(address, length);
    }
    error = errno;
  }
  return absl::UnavailableError(absl::StrCat("there is no way from this host to ",
                                             HostPort(host, port), ": ", std::strerror(error),
                                             "; check the address and the network"));
}

bool IsOwnNameOnLoopback(const std::string& host) {
  if (host == "localhost" || IsNumericAddress(host)) return false;
  const AddrInfoPtr list = Resolve(host, 0, SOCK_STREAM, 0);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (!IsLoopback(entry->ai_addr)) return false;
  }
  return list != nullptr;
}

std::string PlainAddress(std::string address) {
  if (const std::size_t scope = address.find('%'); scope != std::string::npos)
    address.resize(scope);
  constexpr char kMapped[] = "::ffff:";
  const bool mapped = absl::StartsWith(address, kMapped) && absl::StrContains(address, '.');
  return mapped ? address.substr(sizeof kMapped - 1) : address;
}

namespace {

// Adds this host's addresses, those of IPv4 first.
void AddOwnAddresses(bool of_links, std::vector<std::string>& addresses) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      const bool wanted = one->ifa_addr != nullptr && one->ifa_addr->sa_family == family &&
                          (one->ifa_flags & IFF_UP) != 0 && !IsLoopback(one->ifa_addr) &&
                          IsLinkLocal(one->ifa_addr) == of_links;
      if (wanted) addresses.push_back(PlainAddress(NumericAddress(one->ifa_addr, length)));
    }
  }
}

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  AddOwnAddresses(/*of_links=*/false, addresses);
  AddOwnAddresses(/*of_links=*/true, addresses);
  return addresses;
}

absl::StatusOr<std::string> OutwardAddress() {
  // An address that is reserved for documentation stands for any other network; nothing is sent to
  // it.
  absl::StatusOr<std::string> routed = LocalAddressTowards("192.0.2.1", 9);
  if (routed.ok()) return routed;
  std::vector<std::string> own;
  // One of a link is not usable without its interface.
  AddOwnAddresses(/*of_links=*/false, own);
  return own.empty() ? routed : own.front();
}

absl::StatusOr<std::string> AdvertisedAddress(const std::string& host, int port) {
  if (IsOwnNameOnLoopback(host)) {
    absl::StatusOr<std::string> outward = OutwardAddress();
    if (outward.ok()) return outward;
  }
  return LocalAddressTowards(host, port);
}

absl::StatusOr<int> FindFreePort(const std::string& address) {
  auto list = ResolveOrSay(address, 0, SOCK_STREAM, 0);
  if (!list.ok()) return list.status();
  const OwnedFd probe = NewSocket((*list)->ai_family, SOCK_STREAM);
  if (!probe.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot look for a free port at ", address, ": ", ErrnoText(errno)));
  }
  const int port =
      bind(probe.get(), (*list)->ai_addr, (*list)->ai_addrlen) == 0 ? PortOf(probe.get()) : 0;
  if (port == 0) {
    return absl::UnavailableError(
        absl::StrCat("there is no free port at ", address, ": ", std::strerror(errno)));
  }
  return port;
}

}  // namespace ddprun
