// SPDX-License-Identifier: Apache-2.0
// Interfaces, routes, names and ports, for doctor_facts.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/small_file.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/node/network.h"
#include "launcher/placement/worker_environ.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/resolve.h"

namespace ddprun {
namespace {

constexpr std::size_t kTableBytesMax = 4u << 20;
constexpr const char* kListens = "0A";

std::string FirstAddress(const std::string& name) {
  const AddrInfoPtr addresses = Resolve(name, 0, SOCK_STREAM, 0);
  char text[NI_MAXHOST] = "";
  if (addresses == nullptr || getnameinfo(addresses->ai_addr, addresses->ai_addrlen, text,
                                          sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

int MtuOf(const std::string& name) {
  const OwnedFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return fd.valid() && ioctl(fd.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

std::vector<absl::string_view> Fields(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The process that has the socket open, among those that this user may inspect.
std::string HolderOf(const std::string& inode) {
  const std::string wanted = absl::StrCat("socket:[", inode, "]");
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code hidden;
    for (std::filesystem::directory_iterator fd(process.path() / "fd", hidden), end;
         !hidden && fd != end; fd.increment(hidden)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(fd->path(), gone) != wanted) continue;
      const std::string name = ReadSmallFile(absl::StrCat("/proc/", pid, "/comm"));
      return absl::StrCat(Printable(absl::StripAsciiWhitespace(name)), " (pid ", pid, ")");
    }
  }
  return "";
}

}  // namespace

int CountDefaultRoutes(absl::string_view route, absl::string_view ipv6_route) {
  // By metric.
  std::map<long long, int> ipv4;
  std::map<long long, int> ipv6;
  for (const absl::string_view line : absl::StrSplit(route, '\n')) {
    const std::vector<absl::string_view> fields = Fields(line);
    long long metric = 0;
    if (fields.size() < 8 || fields[1] != "00000000" || fields[7] != "00000000" ||
        !absl::SimpleAtoi(fields[6], &metric))
      continue;
    ++ipv4[metric];
  }
  for (const absl::string_view line : absl::StrSplit(ipv6_route, '\n')) {
    const std::vector<absl::string_view> fields = Fields(line);
    unsigned long long metric = 0;
    // The kernel's own unreachable route is on lo.
    if (fields.size() < 10 || fields[0].find_first_not_of('0') != absl::string_view::npos ||
        fields[1] != "00" || fields[9] == "lo" || !absl::SimpleHexAtoi(fields[5], &metric))
      continue;
    ++ipv6[static_cast<long long>(metric)];
  }
  return std::max(ipv4.empty() ? 0 : ipv4.begin()->second, ipv6.empty() ? 0 : ipv6.begin()->second);
}

std::optional<std::string> ListeningInode(absl::string_view table, int port) {
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> fields = Fields(line);
    if (fields.size() < 10 || fields[3] != kListens) continue;
    unsigned long long number = 0;
    const std::size_t colon = fields[1].rfind(':');
    if (colon == absl::string_view::npos ||
        !absl::SimpleHexAtoi(fields[1].substr(colon + 1), &number) ||
        number != static_cast<unsigned long long>(port))
      continue;
    return std::string(fields[9]);
  }
  return std::nullopt;
}

std::string PortHolder(int port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto inode = ListeningInode(ReadSmallFile(table, kTableBytesMax), port);
    if (!inode.has_value()) continue;
    const std::string holder = HolderOf(*inode);
    if (!holder.empty()) return holder;
  }
  return "a program of another user";
}

std::vector<InterfaceFacts> ReadInterfaces() {
  std::vector<InterfaceFacts> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool known =
        std::any_of(interfaces.begin(), interfaces.end(),
                    [&](const InterfaceFacts& other) { return other.name == one->ifa_name; });
    if (known) continue;
    constexpr unsigned kUpWithLink = IFF_UP | IFF_RUNNING;
    interfaces.push_back({.name = one->ifa_name,
                          .mtu = MtuOf(one->ifa_name),
                          .up = (one->ifa_flags & kUpWithLink) == kUpWithLink,
                          .loopback = (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

void CollectNetworkFacts(const Options& options, NodeFacts& facts) {
  facts.interfaces = ReadInterfaces();
  if (const auto interface = InterfaceOf(facts.address)) {
    const bool loopback = std::any_of(
        facts.interfaces.begin(), facts.interfaces.end(),
        [&](const InterfaceFacts& one) { return one.loopback && one.name == interface->name; });
    // On loopback all nodes are on this machine.
    facts.interface = interface->name;
    facts.interface_ipv6 = interface->ipv6 && !loopback;
  }
  facts.default_routes = CountDefaultRoutes(ReadSmallFile("/proc/net/route", kTableBytesMax),
                                            ReadSmallFile("/proc/net/ipv6_route", kTableBytesMax));
  const auto start = std::chrono::steady_clock::now();
  facts.name_address = FirstAddress(HostName());
  facts.name_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.master_addr.has_value() && options.nodes > 1) {
    facts.master_addr = *options.master_addr;
    facts.master_resolved = FirstAddress(*options.master_addr);
  }
  facts.gloo_socket_ifname = ReadVariable("GLOO_SOCKET_IFNAME").value_or("");
  facts.nccl_socket_ifname =
      ReadVariable("NCCL_SOCKET_IFNAME")
          .value_or(NcclConfNamesInterfaces(ReadVariable) ? "nccl.conf" : "");
  const std::string text = ReadSmallFile("/proc/sys/net/ipv4/ip_local_port_range");
  const std::vector<absl::string_view> ports = Fields(absl::StripAsciiWhitespace(text));
  if (ports.size() == 2) facts.ephemeral_ports = absl::StrCat(ports[0], "-", ports[1]);
}

}  // namespace ddprun
