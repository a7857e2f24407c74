// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/network.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "rendezvous/base/addresses.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {

bool IsSameAddress(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

namespace {

std::optional<Interface> FindInterface(const addrinfo* addresses) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (!IsSameAddress(address->ai_addr, one->ifa_addr)) continue;
      return Interface{.name = one->ifa_name,
                       .ipv6 = one->ifa_addr->sa_family == AF_INET6,
                       .is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0,
                       .has_loopback_address = IsLoopback(one->ifa_addr)};
    }
  }
  return std::nullopt;
}

}  // namespace

bool IsThisMachine(const std::string& host) {
  const AddrInfoPtr addresses = Resolve(host, 0, SOCK_STREAM, 0);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    // Any address of 127.0.0.0/8; the interface has only one of them.
    if (IsLoopback(address->ai_addr)) return true;
  }
  return FindInterface(addresses.get()).has_value();
}

std::optional<Interface> InterfaceWith(const std::string& host) {
  return FindInterface(Resolve(host, 0, SOCK_STREAM, 0).get());
}

bool IsPortFree(const std::string& host, int port) {
  const AddrInfoPtr addresses = Resolve(host, port, SOCK_STREAM, 0);
  if (addresses == nullptr) return false;
  const OwnedFd fd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid())
    return IsOutOfDescriptors(errno);  // the caller, which binds the port, reports it better
  // As servers do: ignores connections of an earlier server in TIME_WAIT.
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  return bind(fd.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 && listen(fd.get(), 1) == 0;
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return Printable(name);
}

}  // namespace ddprun
