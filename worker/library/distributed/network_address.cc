// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/network_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <stdexcept>

#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"

namespace ddprun {
namespace {

bool IsLoopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

}  // namespace

std::string AddressForPeers(const WorkerEnv& env) {
  absl::StatusOr<std::string> address = LocalAddressTowards(env.master_addr, env.master_port);
  if (address.ok() && (env.group_world_size == 1 || !IsLoopback(*address))) return *address;
  const absl::StatusOr<std::string> outward = OutwardAddress();
  if (address.ok() && outward.ok()) return *outward;
  const std::string reason = address.ok() ? "is loopback and this host has no other route"
                                          : std::string(address.status().message());
  throw std::runtime_error("rank " + std::to_string(env.rank) +
                           " finds no address for the other ranks: the route to " +
                           env.master_addr + " (MASTER_ADDR): " + reason +
                           "; name the interface in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME");
}

std::string InterfaceOf(const std::string& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && AddressText(entry->ifa_addr) == address)
      return entry->ifa_name;
  }
  return "";
}

}  // namespace ddprun
