// SPDX-License-Identifier: Apache-2.0
// What should be the same on all nodes: versions, environment, folder, program.
#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {
namespace {

// Names of variables in one sentence; the rest is counted.
constexpr std::size_t kNamesShown = 12;
constexpr std::size_t kValueShown = 60;

struct Group {
  std::string value;
  std::vector<int> nodes;
};
using Groups = std::vector<Group>;

// Nodes with the same value, in the order of their first ones.
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

struct Versions {
  const char* check;
  std::string what;
  Health health = Health::kWarning;  // where they differ
  const char* advice;
};

void CheckSame(const Checkup& checkup, const Versions& versions, const Groups& values,
               std::vector<Finding>& findings) {
  if (values.size() > 1) {
    findings.push_back({versions.check, versions.health, AllNodes(checkup),
                        absl::StrCat(versions.what, " differs: ", InWords(values, "none"), "; ",
                                     versions.advice)});
  } else if (!values.front().value.empty()) {
    findings.push_back({versions.check, Health::kOk, AllNodes(checkup),
                        absl::StrCat(versions.what, " ", values.front().value)});
  }
}

void CheckMaps(const Checkup& checkup, const char* check,
               const std::map<std::string, std::string> NodeFacts::*member,
               std::vector<Finding>& findings) {
  std::set<std::string> names;
  std::vector<NodeFacts> nodes;
  for (const NodeFacts& node : checkup.nodes) {
    for (const auto& entry : node.*member) names.insert(entry.first);
    // One that was not asked says nothing.
    if (check != std::string("python") || !(node.*member).empty()) nodes.push_back(node);
  }
  for (const std::string& name : names) {
    // NCCL itself refuses a communicator of several versions.
    const bool nccl = absl::StrContains(name, "NCCL") || absl::StrContains(name, "nccl");
    const Groups values = Sort(nodes, [&](const NodeFacts& node) {
      const auto it = (node.*member).find(name);
      return it == (node.*member).end() ? std::string() : it->second;
    });
    CheckSame(checkup,
              {.check = check,
               .what = name,
               .health = nccl ? Health::kFail : Health::kWarning,
               .advice = nccl ? "NCCL refuses to work with itself in other versions; install one"
                              : "install one version on all nodes"},
              values, findings);
  }
}

bool ConcernsWorkers(const std::string& name) {
  for (const char* start : {"NCCL_", "GLOO_", "OMP_", "MKL_", "TORCH_", "CUDA_", "FI_", "UCX_",
                            "PYTORCH_", "NVIDIA_", "PYTHON"}) {
    if (absl::StartsWith(name, start)) return true;
  }
  return name == "PATH" || name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD";
}

void CheckEnvironment(const Checkup& checkup, std::vector<Finding>& findings) {
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
      // Set to nothing is something else than not set.
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
    findings.push_back(
        {"environment", Health::kWarning, AllNodes(checkup),
         secret ? absl::StrCat(name, " differs; set it alike on all nodes, or use -x with -H")
                : absl::StrCat(name, " differs: ", InWords(values, "not set"),
                               "; set it alike on all nodes unless that is meant")});
  }
  if (!others.empty()) {
    const std::size_t shown = std::min(others.size(), kNamesShown);
    std::string text = absl::StrCat(
        "also differ: ",
        absl::StrJoin(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
    if (others.size() > shown) absl::StrAppend(&text, " and ", others.size() - shown, " more");
    findings.push_back({"environment", Health::kOk, AllNodes(checkup), std::move(text)});
  } else if (same) {
    findings.push_back({"environment", Health::kOk, AllNodes(checkup), "the same on all nodes"});
  }
}

void CheckProgram(const Checkup& checkup, std::vector<Finding>& findings) {
  if (checkup.nodes.size() > 1) {
    const Groups folders = Sort(checkup.nodes, [](const NodeFacts& node) { return node.folder; });
    const Health health = folders.size() > 1 ? Health::kWarning : Health::kOk;
    findings.push_back({"folder", health, AllNodes(checkup),
                        folders.size() > 1
                            ? absl::StrCat("the working folder differs: ", InWords(folders, "none"),
                                           "; relative paths mean other files there")
                            : folders.front().value});
  }
  bool found = true;
  for (const NodeFacts& node : checkup.nodes) {
    if (node.program_error.empty()) continue;
    found = false;
    findings.push_back({"program", Health::kFail, {node.node}, node.program_error});
  }
  if (!found || checkup.nodes.empty() || checkup.nodes.front().program.empty()) return;
  const Groups hashes =
      Sort(checkup.nodes, [](const NodeFacts& node) { return node.program_hash; });
  if (hashes.size() == 1) {
    findings.push_back(
        {"program", Health::kOk, AllNodes(checkup),
         absl::StrCat(checkup.nodes.front().program,
                      checkup.nodes.size() > 1 ? ", the same file everywhere" : "")});
    return;
  }
  std::vector<std::string> groups;
  for (const auto& entry : hashes) groups.push_back(NodesInWords(entry.nodes));
  findings.push_back({"program", Health::kFail, AllNodes(checkup),
                      absl::StrCat(checkup.nodes.front().program, " is another file on ",
                                   absl::StrJoin(groups, ", on "),
                                   "; copy one to all nodes, or start it from a shared folder")});
}

}  // namespace

void DiagnoseDifferences(const Checkup& checkup, std::vector<Finding>& findings) {
  if (checkup.nodes.empty()) return;
  CheckSame(checkup,
            {.check = "version",
             .what = "ddprun",
             .health = Health::kWarning,
             .advice = "install one version on all nodes"},
            Sort(checkup.nodes, [](const NodeFacts& node) { return node.version; }), findings);
  if (checkup.nodes.size() > 1) {
    const Groups drivers = Sort(checkup.nodes, [](const NodeFacts& node) { return node.driver; });
    if (drivers.size() > 1) {
      CheckSame(checkup,
                {.check = "gpu",
                 .what = "the NVIDIA driver",
                 .health = Health::kWarning,
                 .advice = "install one version on all nodes"},
                drivers, findings);
    }
    const Groups gpus = Sort(checkup.nodes, [](const NodeFacts& node) {
      return absl::StrCat(
          node.gpus,
          node.gpu_models.empty() ? "" : absl::StrCat(" of ", absl::StrJoin(node.gpu_models, "/")));
    });
    if (gpus.size() > 1) {
      CheckSame(checkup,
                {.check = "gpu",
                 .what = "the number or kind of GPUs",
                 .health = Health::kWarning,
                 .advice = "each step takes as long as the slowest worker's"},
                gpus, findings);
    }
  }
  CheckMaps(checkup, "libraries", &NodeFacts::libraries, findings);
  CheckMaps(checkup, "python", &NodeFacts::packages, findings);
  CheckEnvironment(checkup, findings);
  CheckProgram(checkup, findings);
}

}  // namespace ddprun
