// SPDX-License-Identifier: Apache-2.0
// What should be equal on all nodes: versions, environment, folder, program.
#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {
namespace {

// Variables that one sentence names; the others are only counted.
constexpr std::size_t kNamesShown = 12;
constexpr std::size_t kValueShown = 60;
constexpr char kInstallOne[] = "install one version on all nodes";

struct Group {
  std::string value;
  std::vector<int> nodes;
};
using Groups = std::vector<Group>;

// Groups of nodes with the same value, in the order of their first nodes.
Groups Sort(const std::vector<NodeFacts>& nodes,
            const std::function<std::string(const NodeFacts&)>& value_of) {
  Groups groups;
  for (const NodeFacts& node : nodes) {
    const std::string value = value_of(node);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& group) { return group.value == value; });
    if (same == groups.end()) {
      groups.push_back({value, {node.node}});
    } else {
      same->nodes.push_back(node.node);
    }
  }
  return groups;
}

std::vector<int> AllNodes(const Checkup& checkup) {
  std::vector<int> nodes;
  for (const NodeFacts& node : checkup.nodes) nodes.push_back(node.node);
  return nodes;
}

// "2.27 on nodes 0-1, none on node 2".
std::string InWords(const Groups& values, const char* nothing) {
  std::vector<std::string> parts;
  for (const auto& [value, nodes] : values) {
    std::string shown = value.empty() ? nothing : value;
    if (!value.empty() && value.front() == kHashMark) shown = "a value";
    if (shown.size() > kValueShown) shown = absl::StrCat(shown.substr(0, kValueShown), "...");
    parts.push_back(absl::StrCat(shown, " on ", NodesInWords(nodes)));
  }
  return absl::StrJoin(parts, ", ");
}

// What should have one value on all nodes.
struct Comparison {
  const char* check;
  std::string what;
  std::string (*value_of)(const NodeFacts&);
  Health health;  // of a difference
  const char* advice;
  bool shows_equal;  // a value that all nodes share is a finding too
};

const Comparison kComparisons[] = {
    {"version", "ddprun", [](const NodeFacts& node) { return node.version; }, Health::kWarning,
     kInstallOne, true},
    {"gpu", "the NVIDIA driver", [](const NodeFacts& node) { return node.driver; },
     Health::kWarning, kInstallOne, false},
    {"gpu", "the number or kind of GPUs",
     [](const NodeFacts& node) {
       const char* of = node.gpu_models.empty() ? "" : " of ";
       return absl::StrCat(node.gpus, of, absl::StrJoin(node.gpu_models, "/"));
     },
     Health::kWarning, "each step takes as long as the slowest worker's", false},
};

void CheckSame(const Checkup& checkup, const Comparison& comparison, const Groups& values,
               Findings& findings) {
  if (values.size() > 1) {
    findings.Add(comparison.check, comparison.health, AllNodes(checkup), comparison.what,
                 " differs: ", InWords(values, "none"), "; ", comparison.advice);
  } else if (comparison.shows_equal && !values.front().value.empty()) {
    findings.Ok(comparison.check, AllNodes(checkup), comparison.what, " ", values.front().value);
  }
}

void CheckMaps(const Checkup& checkup, const char* check,
               const std::map<std::string, std::string> NodeFacts::*member, Findings& findings) {
  std::set<std::string> names;
  std::vector<NodeFacts> nodes;
  for (const NodeFacts& node : checkup.nodes) {
    for (const auto& entry : node.*member) names.insert(entry.first);
    // A node without --python has no packages to compare.
    if (check != std::string("python") || !(node.*member).empty()) nodes.push_back(node);
  }
  for (const std::string& name : names) {
    const Groups values = Sort(nodes, [&](const NodeFacts& node) {
      const auto it = (node.*member).find(name);
      return it == (node.*member).end() ? std::string() : it->second;
    });
    // NCCL itself rejects a communicator of several versions.
    const bool nccl = absl::StrContains(absl::AsciiStrToLower(name), "nccl");
    CheckSame(
        checkup,
        {check, name, nullptr, nccl ? Health::kFail : Health::kWarning,
         nccl ? "NCCL refuses to work with itself in other versions; install one" : kInstallOne,
         true},
        values, findings);
  }
}

bool ConcernsWorkers(const std::string& name) {
  return ConfiguresLibraries(name) || absl::StartsWith(name, "PYTHON") || name == "PATH" ||
         name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD";
}

void CheckEnvironment(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.size() < 2) return;
  std::set<std::string> names;
  for (const NodeFacts& node : checkup.nodes) {
    for (const auto& entry : node.environment) names.insert(entry.first);
  }
  std::vector<std::string> others;
  bool same = true;
  for (const std::string& name : names) {
    const Groups values = Sort(checkup.nodes, [&](const NodeFacts& node) {
      const auto it = node.environment.find(name);
      // An empty value differs from an unset variable.
      if (it == node.environment.end()) return std::string();
      return it->second.empty() ? std::string("''") : it->second;
    });
    if (values.size() == 1) continue;
    same = false;
    if (!ConcernsWorkers(name)) {
      others.push_back(name);
      continue;
    }
    const bool secret = std::any_of(values.begin(), values.end(), [](const auto& entry) {
      return !entry.value.empty() && entry.value.front() == kHashMark;
    });
    findings.Warn("environment", AllNodes(checkup),
                  secret
                      ? absl::StrCat(name, " differs; set it alike on all nodes, or use -x with -H")
                      : absl::StrCat(name, " differs: ", InWords(values, "not set"),
                                     "; set it alike on all nodes unless that is meant"));
  }
  if (!others.empty()) {
    const std::size_t shown = std::min(others.size(), kNamesShown);
    std::string text = absl::StrCat(
        "also differ: ",
        absl::StrJoin(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
    if (others.size() > shown) absl::StrAppend(&text, " and ", others.size() - shown, " more");
    findings.Ok("environment", AllNodes(checkup), text);
  } else if (same) {
    findings.Ok("environment", AllNodes(checkup), "the same on all nodes");
  }
}

void CheckProgram(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.size() > 1) {
    const Groups folders = Sort(checkup.nodes, [](const NodeFacts& node) { return node.folder; });
    const Health health = folders.size() > 1 ? Health::kWarning : Health::kOk;
    findings.Add("folder", health, AllNodes(checkup),
                 folders.size() > 1
                     ? absl::StrCat("the working folder differs: ", InWords(folders, "none"),
                                    "; relative paths mean other files there")
                     : folders.front().value);
  }
  bool found = true;
  for (const NodeFacts& node : checkup.nodes) {
    if (node.program_error.empty()) continue;
    found = false;
    findings.Fail("program", {node.node}, node.program_error);
  }
  if (!found || checkup.nodes.empty() || checkup.nodes.front().program.empty()) return;
  const Groups hashes =
      Sort(checkup.nodes, [](const NodeFacts& node) { return node.program_hash; });
  if (hashes.size() == 1) {
    findings.Ok("program", AllNodes(checkup), checkup.nodes.front().program,
                checkup.nodes.size() > 1 ? ", the same file everywhere" : "");
    return;
  }
  std::vector<std::string> groups;
  for (const auto& entry : hashes) groups.push_back(NodesInWords(entry.nodes));
  findings.Fail("program", AllNodes(checkup), checkup.nodes.front().program, " is another file on ",
                absl::StrJoin(groups, ", on "),
                "; copy one to all nodes, or start it from a shared folder");
}

}  // namespace

bool ConfiguresLibraries(absl::string_view name) {
  constexpr const char* kPrefixes[] = {"NCCL_", "GLOO_", "OMP_", "MKL_",     "TORCH_",
                                       "CUDA_", "FI_",   "UCX_", "PYTORCH_", "NVIDIA_"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) { return absl::StartsWith(name, prefix); });
}

void DiagnoseDifferences(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.empty()) return;
  for (const Comparison& comparison : kComparisons)
    CheckSame(checkup, comparison, Sort(checkup.nodes, comparison.value_of), findings);
  CheckMaps(checkup, "libraries", &NodeFacts::libraries, findings);
  CheckMaps(checkup, "python", &NodeFacts::packages, findings);
  CheckEnvironment(checkup, findings);
  CheckProgram(checkup, findings);
}

}  // namespace ddprun
