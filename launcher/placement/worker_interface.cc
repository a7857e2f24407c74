// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_interface.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

bool FileNamesInterfaces(const std::string& path) {
  const std::string text = ReadSmallFile(path, kNcclConfBytesMax);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(absl::StripAsciiWhitespace(line), "NCCL_SOCKET_IFNAME")) return true;
  }
  return false;
}

}  // namespace

std::optional<Interface> InterfaceOf(const std::string& address) {
  if (address.empty()) return std::nullopt;
  std::optional<Interface> found = InterfaceWith(address);
  // Hosts that route by themselves (BGP) have their address at `lo`; told so, Gloo and NCCL would
  // take 127.0.0.1, which is first there.
  if (!found.has_value() || (found->is_loopback && !found->has_loopback_address))
    return std::nullopt;
  return found;
}

bool NcclConfNamesInterfaces(const GetVariable& get_variable) {
  const std::optional<std::string> home = get_variable("HOME");
  const std::string own =
      get_variable("NCCL_CONF_FILE").value_or(absl::StrCat(home.value_or(""), "/.nccl.conf"));
  return FileNamesInterfaces(own) || FileNamesInterfaces("/etc/nccl.conf");
}

std::vector<std::string> InterfaceVariables(const Interface& interface,
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
