// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {
namespace {

bool FileNamesInterfaces(const std::string& path) {
  std::ifstream file(path);
  std::string text(kNcclConfBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(absl::StripAsciiWhitespace(line), "NCCL_SOCKET_IFNAME")) return true;
  }
  return false;
}

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
}

}  // namespace

std::optional<WorkerInterface> InterfaceOf(const std::string& address) {
  ifaddrs* interfaces = nullptr;
  if (address.empty() || getifaddrs(&interfaces) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
  const AddrInfoPtr addresses = Resolve(address, 0, SOCK_STREAM, 0);
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (IsSameAddress(entry->ai_addr, one->ifa_addr)) {
        // Hosts that route by themselves (BGP) have their address there; told `lo`, Gloo and NCCL
        // would take 127.0.0.1, which is first.
        const bool loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
        if (loopback && !IsLoopbackAddress(one->ifa_addr)) return std::nullopt;
        return WorkerInterface{one->ifa_name, one->ifa_addr->sa_family == AF_INET6};
      }
    }
  }
  return std::nullopt;
}

bool NcclConfNamesInterfaces(const GetVariable& get_variable) {
  const std::optional<std::string> home = get_variable("HOME");
  const std::string own =
      get_variable("NCCL_CONF_FILE").value_or(absl::StrCat(home.value_or(""), "/.nccl.conf"));
  return FileNamesInterfaces(own) || FileNamesInterfaces("/etc/nccl.conf");
}

std::vector<std::string> InterfaceVariables(const WorkerInterface& interface,
                                            const GetVariable& get_variable,
                                            bool nccl_conf_names_interfaces) {
  std::vector<std::string> variables;
  if (!get_variable("GLOO_SOCKET_IFNAME").has_value()) {
    variables.push_back(absl::StrCat("GLOO_SOCKET_IFNAME=", interface.name));
  }
  // NCCL takes a name with a ':' (an alias, as eth0:1) for a name with a port.
  if (get_variable("NCCL_SOCKET_IFNAME").has_value() || nccl_conf_names_interfaces ||
      absl::StrContains(interface.name, ':')) {
    return variables;
  }
  // "=": this name and not those that begin with it, as eth1 would mean eth10 too.
  variables.push_back(absl::StrCat("NCCL_SOCKET_IFNAME==", interface.name));
  // Of an interface that has both, NCCL would take the IPv4 address, which may lead nowhere.
  if (interface.ipv6 && !get_variable("NCCL_SOCKET_FAMILY").has_value()) {
    variables.push_back("NCCL_SOCKET_FAMILY=AF_INET6");
  }
  return variables;
}

}  // namespace ddprun
