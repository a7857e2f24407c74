// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_environ.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "proto/round_message.h"
#include "rendezvous/security/token.h"

namespace ddprun {
namespace {

// Every name that ToEnviron() can set, also those that are absent for `env`.
std::set<std::string> ContractNames() {
  WorkerEnv all;
  all.error_file = all.agent_socket = all.notify_socket = "x";
  all.round = 1;
  all.one_round = all.console_is_terminal = true;
  std::set<std::string> names;
  for (const auto& [name, value] : ToEnviron(all)) names.insert(name);
  return names;
}

bool Has(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return absl::StartsWith(entry, name + "="); });
}

}  // namespace

std::vector<std::string> WorkerEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place,
                                       const std::vector<std::string>& network) {
  std::set<std::string> names = ContractNames();
  std::vector<std::string> environment;
  if (place.visible_devices.has_value()) names.insert(VisibleVariable(place.device_kind));
  names.insert(kTokenVariable);  // taken out of this process's own already: to be sure
  for (const std::string& entry : network) names.insert(entry.substr(0, entry.find('=')));
  for (const std::string& entry : inherited) {
    if (names.count(entry.substr(0, entry.find('='))) == 0) environment.push_back(entry);
  }
  WorkerEnv seen = env;
  if (place.local_rank_is_zero) seen.local_rank = 0;
  for (const auto& [name, value] : ToEnviron(seen))
    environment.push_back(absl::StrCat(name, "=", value));
  if (place.visible_devices.has_value()) {
    environment.push_back(
        absl::StrCat(VisibleVariable(place.device_kind), "=", *place.visible_devices));
  }
  if (place.threads > 0 && !Has(inherited, "OMP_NUM_THREADS")) {
    environment.push_back(absl::StrCat("OMP_NUM_THREADS=", place.threads));
  }
  environment.insert(environment.end(), network.begin(), network.end());
  if (!Has(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    environment.push_back("TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
  return environment;
}

std::vector<std::string> ParkedEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place) {
  std::vector<std::string> environment = WorkerEnviron(inherited, env, place, {});
  std::erase_if(environment, [](const std::string& entry) {
    constexpr absl::string_view kOfTheRound[] = {
        "RANK=",      "LOCAL_RANK=",      "WORLD_SIZE=",  "GROUP_RANK=",  "GROUP_WORLD_SIZE=",
        "ROLE_RANK=", "ROLE_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=", "DDPRUN_ROUND="};
    return std::any_of(std::begin(kOfTheRound), std::end(kOfTheRound),
                       [&](absl::string_view name) { return absl::StartsWith(entry, name); });
  });
  environment.push_back(absl::StrCat(kParkedVariable, "=1"));
  return environment;
}

std::vector<std::string> CommonEnviron(const std::vector<std::string>& inherited,
                                       const Place& place) {
  std::vector<std::string> environment =
      WorkerEnviron(inherited, {}, Place{.threads = place.threads}, {});
  std::erase_if(environment, [names = ContractNames()](const std::string& entry) {
    return names.count(entry.substr(0, entry.find('='))) != 0;
  });
  return environment;
}

std::vector<std::string> OwnEnviron() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

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
  // If an interface has both, NCCL would take the IPv4 address, which may lead nowhere.
  if (interface.ipv6 && !get_variable("NCCL_SOCKET_FAMILY").has_value()) {
    variables.push_back("NCCL_SOCKET_FAMILY=AF_INET6");
  }
  return variables;
}

}  // namespace ddprun
