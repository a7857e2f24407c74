// SPDX-License-Identifier: Apache-2.0
// Checks of the network between nodes: addresses, interfaces, ports, round trips, clocks.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/int_ranges.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/hosts/hosts_head.h"

namespace ddprun {
namespace {

// A slow name resolution delays every start, often twice.
constexpr double kNameSecondsMax = 1;
// ddprun never compares the clocks of two hosts. People do when they read the logs of several
// nodes, and so do Kerberos, make and other programs that use files on a shared disk.
constexpr double kSkewSecondsMax = 1;
// 1 Gbit/s carries 117 MB/s. A link with less than a quarter of that is wireless, a tunnel or has
// 100 Mbit/s: gradients of 100 MB then take seconds per step.
constexpr double kBytesPerSecondMin = 30e6;
// Relative to the median of the links: a collective is as fast as its slowest link.
constexpr double kSlowLinkShare = 0.25;
// A round trip within one building takes less than 1 ms.
constexpr double kRttSecondsMax = 5e-3;

bool IsVirtual(const std::string& name) {
  for (const char* start : {"docker", "virbr", "br-", "cni", "flannel", "podman", "lxcbr"}) {
    if (absl::StartsWith(name, start)) return true;
  }
  return false;
}

std::string UpInterfaces(const NodeFacts& node) {
  std::vector<std::string> names;
  for (const InterfaceFacts& one : node.interfaces) {
    if (one.up) names.push_back(one.name);
  }
  return absl::StrJoin(names, ", ");
}

// The user's variable, if no interface matches it or the one towards node 0 does not.
Judgement Variable(const NodeFacts& node, const char* name, const std::string& value,
                   bool (*allows)(const std::string&, const std::string&)) {
  if (value.empty() || value == "nccl.conf") return {};
  const bool any =
      std::any_of(node.interfaces.begin(), node.interfaces.end(),
                  [&](const InterfaceFacts& one) { return one.up && allows(value, one.name); });
  if (!any) {
    return Fail(name, "=", value, " is no interface that is up here (", UpInterfaces(node),
                "); unset it, and ddprun names the right one");
  }
  if (node.interface.empty() || allows(value, node.interface)) return {};
  return Warn(name, "=", value, " is another interface than ", node.interface,
              ", over which node 0 is reached; unset it unless that is meant");
}

Judgement MasterName(const NodeFacts& node) {
  if (node.master_addr.empty() || !node.hosts_service || !IsLoopback(node.master_resolved) ||
      IsLoopback(node.master_addr))
    return {};
  return Warn("--master-addr ", node.master_addr, " is ", node.master_resolved,
              " here (an entry of /etc/hosts, as Debian makes it), so the service listens on all "
              "interfaces; give the address instead of the name to choose one");
}

Judgement OwnName(const NodeFacts& node) {
  if (node.name_seconds <= kNameSecondsMax) return {};
  return Warn("to resolve the own name ", node.host, " takes ",
              absl::StrFormat("%.0f s", std::ceil(node.name_seconds)),
              "; put it into /etc/hosts, or mend /etc/resolv.conf");
}

// If the interface is known, workers get its name and do not resolve the host's.
Judgement AddressOfName(const NodeFacts& node) {
  if (!node.interface.empty() || !(node.name_address.empty() || IsLoopback(node.name_address)))
    return {};
  return Warn("no interface has the address ", node.address, ", so Gloo takes that of the name ",
              node.host, ", which is ", node.name_address.empty() ? "none" : node.name_address,
              "; set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, of ", UpInterfaces(node));
}

Judgement DefaultRoutes(const NodeFacts& node) {
  if (node.default_routes <= 1) return {};
  return Warn(node.default_routes,
              " default routes have the same metric, so the choice is arbitrary; give one of them "
              "a higher metric (ip route)");
}

Judgement Bridge(const NodeFacts& node) {
  if (!IsVirtual(node.interface)) return {};
  return Warn("node 0 is reached over ", node.interface,
              ", a bridge for containers or virtual machines; give a --master-addr of the network "
              "between the hosts");
}

Judgement SoundAddress(const NodeFacts& node) {
  if (node.interface.empty())
    return Ok("no interface has the address ", node.address, "; workers choose one by themselves");
  const auto given = [&](const char* name, const char* equals, const std::string& value) {
    return value.empty() ? absl::StrCat(name, equals, node.interface) : absl::StrCat("your ", name);
  };
  return Ok(node.interface, " leads to the others; workers get ",
            given("NCCL_SOCKET_IFNAME", "==", node.nccl_socket_ifname), ", ",
            given("GLOO_SOCKET_IFNAME", "=", node.gloo_socket_ifname),
            node.interface_ipv6 ? " (IPv6)" : "");
}

void CheckAddress(const NodeFacts& node, bool several, Findings& findings) {
  const std::size_t before = findings.list.size();
  const auto add = [&](Judgement judgement) {
    findings.Add("address", {node.node}, std::move(judgement));
  };
  if (several) add(MasterName(node));
  add(OwnName(node));
  if (several) add(AddressOfName(node));
  add(Variable(node, "NCCL_SOCKET_IFNAME", node.nccl_socket_ifname, NcclAllows));
  add(Variable(node, "GLOO_SOCKET_IFNAME", node.gloo_socket_ifname, GlooNames));
  add(DefaultRoutes(node));
  if (several) add(Bridge(node));
  if (several && findings.list.size() == before) add(SoundAddress(node));
}

void CheckMtu(const Checkup& checkup, Findings& findings) {
  std::map<int, std::vector<int>> nodes_by_mtu;
  std::vector<int> all;
  for (const NodeFacts& node : checkup.nodes) {
    for (const InterfaceFacts& one : node.interfaces) {
      if (one.name != node.interface) continue;
      nodes_by_mtu[one.mtu].push_back(node.node);
      all.push_back(node.node);
    }
  }
  if (nodes_by_mtu.empty()) return;
  if (nodes_by_mtu.size() == 1) return findings.Add("mtu", all, Ok(nodes_by_mtu.begin()->first));
  const auto entry = [](std::string* text, const auto& one) {
    absl::StrAppend(text, one.first, " on ", NodesText(one.second));
  };
  findings.Add("mtu", all,
               Warn(absl::StrJoin(nodes_by_mtu, ", ", entry),
                    ": large packets may be lost without a word, and a run hangs in its first "
                    "collective; set one MTU (ip link set dev IF mtu N)"));
}

Judgement ServicePort(const NodeFacts& node) {
  if (node.service_port == 0 || !node.hosts_service) return {};
  if (node.service_port_holder.empty())
    return Ok("the service can listen at port ", node.service_port);
  return Fail("--master-port ", node.service_port, " is in use by ", node.service_port_holder,
              "; end that, or give another --master-port on all nodes");
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  return absl::StrFormat("%.1f ms", seconds * 1e3);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void CheckConnections(const Checkup& checkup, Findings& findings) {
  // By error and target: a firewall blocks a node for all others alike.
  std::map<std::pair<std::string, int>, std::vector<int>> failures;
  std::vector<double> rtts;
  for (const PairFacts& pair : checkup.pairs) {
    if (pair.error.empty()) {
      rtts.push_back(pair.rtt_seconds);
    } else {
      failures[{pair.error, pair.to}].push_back(pair.from);
    }
  }
  std::string ports;
  for (const NodeFacts& node : checkup.nodes) {
    if (!node.ephemeral_ports.empty()) ports = absl::StrCat(" (", node.ephemeral_ports, ")");
  }
  for (auto& [what, from] : failures) {
    findings.Add(
        "connections", from,
        Fail("no way to node ", what.second, ": ", what.first,
             "; NCCL and Gloo connect nodes at any port: let TCP through between them", ports));
  }
  if (rtts.empty()) return;
  const double worst = *std::max_element(rtts.begin(), rtts.end());
  const std::string times =
      absl::StrCat(rtts.size(), " of ", checkup.pairs.size(), " ways work, round trip ",
                   Time(Median(rtts)), ", at most ", Time(worst));
  findings.Add("connections", {},
               worst <= kRttSecondsMax
                   ? Ok(times)
                   : Warn(times, ": far for nodes that train together; are they in one network?"));
}

std::string Rate(double bytes) {
  return bytes < 1e9 ? absl::StrFormat("%.0f MB/s", bytes / 1e6)
                     : absl::StrFormat("%.1f GB/s", bytes / 1e9);
}

Judgement Bandwidth(const Checkup& checkup) {
  std::vector<double> rates;
  const PairFacts* slowest = nullptr;
  for (const PairFacts& pair : checkup.pairs) {
    if (pair.bytes_per_second <= 0) continue;
    rates.push_back(pair.bytes_per_second);
    if (slowest == nullptr || pair.bytes_per_second < slowest->bytes_per_second) slowest = &pair;
  }
  if (slowest == nullptr) return {};
  const double least = slowest->bytes_per_second;
  const std::string link =
      absl::StrCat("node ", slowest->from, " to node ", slowest->to, ": ", Rate(least));
  if (least < kBytesPerSecondMin) {
    return Warn(link,
                ", less than a wired network has; is it the right interface (see address), a "
                "tunnel, a link at 100 Mbit/s (ethtool)?");
  }
  if (const double median = Median(rates); least < kSlowLinkShare * median) {
    return Warn(link, ", others have ", Rate(median),
                "; each step waits for it: look at that link (ethtool, its switch port), or leave "
                "the node out");
  }
  return Ok("over one TCP connection, all at once: ", Rate(least), " or more");
}

void CheckClocks(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.empty()) return;
  const int reference = checkup.nodes.front().node;  // 0, if it came
  double worst = -1;
  double uncertainty = 0;
  for (const PairFacts& pair : checkup.pairs) {
    if (!pair.error.empty() || pair.to != reference) continue;
    worst = std::max(worst, std::abs(pair.skew_seconds));
    uncertainty = std::max(uncertainty, pair.skew_uncertainty);
    if (std::abs(pair.skew_seconds) <= kSkewSecondsMax + pair.skew_uncertainty) continue;
    findings.Add("clock", {pair.from},
                 Warn(absl::StrFormat("%.1f s ", std::abs(pair.skew_seconds)),
                      pair.skew_seconds > 0 ? "behind" : "ahead of", " node ", reference, " (+- ",
                      Time(pair.skew_uncertainty),
                      "): a run does not mind, but logs and events of the nodes cannot be put in "
                      "order; start chrony or timesyncd"));
  }
  if (worst < 0 || worst > kSkewSecondsMax) return;
  findings.Add(
      "clock", {},
      Ok("at most ", Time(worst), " from node ", reference, " (+- ", Time(uncertainty), ")"));
}

}  // namespace

void DiagnoseNetwork(const Checkup& checkup, Findings& findings) {
  const bool several = checkup.nodes_wanted > 1;
  for (const NodeFacts& node : checkup.nodes) {
    CheckAddress(node, several, findings);
    findings.Add("port", {node.node}, ServicePort(node));
  }
  if (several) CheckMtu(checkup, findings);
  CheckConnections(checkup, findings);
  findings.Add("bandwidth", {}, Bandwidth(checkup));
  CheckClocks(checkup, findings);
}

bool NcclAllows(const std::string& value, const std::string& interface) {
  absl::string_view list = value;
  const bool all_but = absl::ConsumePrefix(&list, "^");
  const bool whole = absl::ConsumePrefix(&list, "=");
  bool named = false;
  for (absl::string_view name : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    name = name.substr(0, name.find(':'));  // a port may follow
    named = named || (whole ? interface == name : absl::StartsWith(interface, name));
  }
  return named != all_but;
}

bool GlooNames(const std::string& value, const std::string& interface) {
  const std::vector<std::string> names = absl::StrSplit(value, ',');
  return std::find(names.begin(), names.end(), interface) != names.end();
}

}  // namespace ddprun
