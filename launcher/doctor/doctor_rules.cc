// SPDX-License-Identifier: Apache-2.0
// The findings on membership, and the order of the list.
#include "launcher/doctor/doctor_rules.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_format.h"
#include "launcher/base/int_ranges.h"

namespace ddprun {
namespace {

// In the order in which they are shown.
constexpr const char* kChecks[] = {"nodes",     "secret",      "version",     "address", "mtu",
                                   "port",      "connections", "bandwidth",   "clock",   "nofile",
                                   "memlock",   "processes",   "shm",         "memory",  "workers",
                                   "kernel",    "stacks",      "cgroup",      "core",    "gpu",
                                   "libraries", "python",      "environment", "folder",  "program"};

std::size_t Order(const std::string& check) {
  return static_cast<std::size_t>(
      std::distance(std::begin(kChecks), std::find(std::begin(kChecks), std::end(kChecks), check)));
}

std::vector<Finding> Fold(std::vector<Finding> findings) {
  std::vector<Finding> folded;
  for (Finding& finding : findings) {
    const auto same = std::find_if(folded.begin(), folded.end(), [&](const Finding& other) {
      return other.check == finding.check && other.health == finding.health &&
             other.text == finding.text;
    });
    if (same == folded.end()) {
      folded.push_back(std::move(finding));
    } else {
      same->nodes.insert(same->nodes.end(), finding.nodes.begin(), finding.nodes.end());
    }
  }
  for (Finding& finding : folded) {
    std::sort(finding.nodes.begin(), finding.nodes.end());
    finding.nodes.erase(std::unique(finding.nodes.begin(), finding.nodes.end()),
                        finding.nodes.end());
  }
  // Within a check the worst first.
  std::stable_sort(folded.begin(), folded.end(), [](const Finding& a, const Finding& b) {
    if (Order(a.check) != Order(b.check)) return Order(a.check) < Order(b.check);
    return a.health > b.health;
  });
  return folded;
}

std::vector<int> Missing(const Checkup& checkup) {
  std::set<int> missing;
  for (int node = 0; node < checkup.nodes_wanted; ++node) missing.insert(node);
  for (const NodeFacts& facts : checkup.nodes) missing.erase(facts.node);
  return {missing.begin(), missing.end()};
}

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrCat(std::chrono::duration<double>(time).count(), " s");
}

std::string WhoIsMissing(const Checkup& checkup) {
  const int missing = checkup.nodes_wanted - static_cast<int>(checkup.nodes.size());
  if (checkup.by_head) {
    return absl::StrCat(missing, " of ", checkup.nodes_wanted,
                        " hosts take no part; see the messages of ddprun above");
  }
  const std::string who = checkup.numbered ? NodesText(Missing(checkup)) : Counted(missing, "node");
  return absl::StrCat(who, " of ", checkup.nodes_wanted, " did not come within ",
                      Seconds(checkup.timeout),
                      ": run ddprun doctor there at the same time, with the same flags",
                      checkup.numbered ? " and its own --node-rank" : "",
                      "; if it still does not come, its own output there says why. --timeout waits "
                      "longer");
}

}  // namespace

void DiagnoseMeeting(const Checkup& checkup, Findings& findings) {
  const int came = static_cast<int>(checkup.nodes.size());
  if (!checkup.rendezvous_error.empty()) {
    findings.Add("nodes", {},
                 Fail("the other nodes were not met: ", checkup.rendezvous_error,
                      ". What follows concerns this node alone"));
  } else if (came < checkup.nodes_wanted) {
    findings.Add("nodes", {}, Fail(WhoIsMissing(checkup)));
  } else if (checkup.nodes_wanted > 1) {
    findings.Add("nodes", {}, Ok("all ", came, " came"));
  }
  for (const std::string& silence : checkup.silences) findings.Add("nodes", {}, Fail(silence));
  for (const NodeFacts& node : checkup.nodes) {
    findings.Add("secret", {node.node},
                 node.secret_error.empty() ? Ok(node.secret) : Fail(node.secret_error));
  }
}

std::vector<Finding> Diagnose(const Checkup& checkup) {
  Findings findings;
  DiagnoseMeeting(checkup, findings);
  DiagnoseNetwork(checkup, findings);
  DiagnoseMachines(checkup, findings);
  DiagnoseDifferences(checkup, findings);
  return Fold(std::move(findings.list));
}

int ExitCodeOf(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.health == Health::kFail; })
             ? 1
             : 0;
}

std::string NodesText(const std::vector<int>& nodes) {
  return absl::StrCat(nodes.size() == 1 ? "node " : "nodes ", RangesText(nodes));
}

std::string Counted(int count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string BytesText(std::int64_t bytes) {
  constexpr struct {
    int shift;
    const char* name;
  } kUnits[] = {{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& unit : kUnits) {
    if (bytes < (std::int64_t{1} << unit.shift)) continue;
    const double amount =
        static_cast<double>(bytes) / static_cast<double>(std::int64_t{1} << unit.shift);
    return amount < 10 ? absl::StrFormat("%.2g %s", amount, unit.name)
                       : absl::StrFormat("%.0f %s", amount, unit.name);
  }
  return absl::StrCat(bytes, " bytes");
}

}  // namespace ddprun
