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

using Names = std::map<std::string, std::string>;

struct Group {
  std::string value;
  std::vector<int> nodes;

  bool is_hashed() const { return absl::StartsWith(value, absl::string_view(&kHashMark, 1)); }
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

// By each name that a node has. A name without a value has `no_value`.
std::map<std::string, Groups> SortAll(const std::vector<NodeFacts>& nodes, Names NodeFacts::*names,
                                      const std::string& no_value) {
  std::map<std::string, Groups> sorted;
  for (const NodeFacts& has : nodes) {
    for (const auto& entry : has.*names) {
      if (sorted.contains(entry.first)) continue;
      sorted[entry.first] = Sort(nodes, [&](const NodeFacts& node) {
        const auto it = (node.*names).find(entry.first);
        if (it == (node.*names).end()) return std::string();
        return it->second.empty() ? no_value : it->second;
      });
    }
  }
  return sorted;
}

std::vector<int> AllNodes(const Checkup& checkup) {
  std::vector<int> nodes;
  for (const NodeFacts& node : checkup.nodes) nodes.push_back(node.node);
  return nodes;
}

// "2.27 on nodes 0-1, none on node 2".
std::string GroupsText(const Groups& groups, const char* nothing) {
  return absl::StrJoin(groups, ", ", [&](std::string* text, const Group& group) {
    std::string shown = group.value.empty() ? nothing : group.value;
    if (group.is_hashed()) shown = "a value";
    if (shown.size() > kValueShown) shown = absl::StrCat(shown.substr(0, kValueShown), "...");
    absl::StrAppend(text, shown, " on ", NodesText(group.nodes));
  });
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

Judgement Judge(const Comparison& comparison, const Groups& values) {
  if (values.size() > 1) {
    return {comparison.health, absl::StrCat(comparison.what, " differs: ",
                                            GroupsText(values, "none"), "; ", comparison.advice)};
  }
  if (!comparison.shows_equal || values.front().value.empty()) return {};
  return Ok(comparison.what, " ", values.front().value);
}

void CheckVersions(const Checkup& checkup, const char* check, const std::vector<NodeFacts>& nodes,
                   Names NodeFacts::*names, Findings& findings) {
  for (const auto& [name, values] : SortAll(nodes, names, "")) {
    // NCCL itself rejects a communicator of several versions.
    const bool nccl = absl::StrContains(absl::AsciiStrToLower(name), "nccl");
    const Comparison comparison = {
        check,
        name,
        nullptr,
        nccl ? Health::kFail : Health::kWarning,
        nccl ? "NCCL refuses to work with itself in other versions; install one" : kInstallOne,
        true};
    findings.Add(check, AllNodes(checkup), Judge(comparison, values));
  }
}

bool ConcernsWorkers(const std::string& name) {
  return ConfiguresLibraries(name) || absl::StartsWith(name, "PYTHON") || name == "PATH" ||
         name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD";
}

void CheckEnvironment(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.size() < 2) return;
  const std::vector<int> all = AllNodes(checkup);
  std::vector<std::string> others;
  bool same = true;
  // An empty value differs from an unset variable.
  for (const auto& [name, values] : SortAll(checkup.nodes, &NodeFacts::environment, "''")) {
    if (values.size() == 1) continue;
    same = false;
    if (!ConcernsWorkers(name)) {
      others.push_back(name);
    } else if (std::any_of(values.begin(), values.end(),
                           [](const Group& group) { return group.is_hashed(); })) {
      findings.Add("environment", all,
                   Warn(name, " differs; set it alike on all nodes, or use -x with -H"));
    } else {
      findings.Add("environment", all,
                   Warn(name, " differs: ", GroupsText(values, "not set"),
                        "; set it alike on all nodes unless that is meant"));
    }
  }
  if (same) findings.Add("environment", all, Ok("the same on all nodes"));
  if (others.empty()) return;
  const std::size_t more = others.size() - std::min(others.size(), kNamesShown);
  others.resize(others.size() - more);
  findings.Add("environment", all,
               Ok("also differ: ", absl::StrJoin(others, ", "),
                  more > 0 ? absl::StrCat(" and ", more, " more") : ""));
}

void CheckFolder(const Checkup& checkup, Findings& findings) {
  if (checkup.nodes.size() < 2) return;
  const Groups folders = Sort(checkup.nodes, [](const NodeFacts& node) { return node.folder; });
  findings.Add("folder", AllNodes(checkup),
               folders.size() == 1
                   ? Ok(folders.front().value)
                   : Warn("the working folder differs: ", GroupsText(folders, "none"),
                          "; relative paths mean other files there"));
}

void CheckProgram(const Checkup& checkup, Findings& findings) {
  bool found = true;
  for (const NodeFacts& node : checkup.nodes) {
    found = found && node.program_error.empty();
    findings.Add("program", {node.node}, Fail(node.program_error));
  }
  const std::string& program = checkup.nodes.front().program;
  if (!found || program.empty()) return;
  const Groups hashes =
      Sort(checkup.nodes, [](const NodeFacts& node) { return node.program_hash; });
  if (hashes.size() == 1) {
    return findings.Add("program", AllNodes(checkup),
                        Ok(program, checkup.nodes.size() > 1 ? ", the same file everywhere" : ""));
  }
  const auto nodes = [](std::string* text, const Group& group) {
    absl::StrAppend(text, NodesText(group.nodes));
  };
  findings.Add("program", AllNodes(checkup),
               Fail(program, " is another file on ", absl::StrJoin(hashes, ", on ", nodes),
                    "; copy one to all nodes, or start it from a shared folder"));
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
  for (const Comparison& comparison : kComparisons) {
    findings.Add(comparison.check, AllNodes(checkup),
                 Judge(comparison, Sort(checkup.nodes, comparison.value_of)));
  }
  CheckVersions(checkup, "libraries", checkup.nodes, &NodeFacts::libraries, findings);
  // A node without --python has no packages to compare.
  std::vector<NodeFacts> asked = checkup.nodes;
  std::erase_if(asked, [](const NodeFacts& node) { return node.packages.empty(); });
  CheckVersions(checkup, "python", asked, &NodeFacts::packages, findings);
  CheckEnvironment(checkup, findings);
  CheckFolder(checkup, findings);
  CheckProgram(checkup, findings);
}

}  // namespace ddprun
