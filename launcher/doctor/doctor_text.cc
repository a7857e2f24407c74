// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/base/int_ranges.h"
#include "proto/json_text.h"

namespace ddprun {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kCheckColumns = 12;
constexpr std::size_t kNodesColumnsMin = 5;
constexpr std::size_t kNodesColumnsMax = 16;
constexpr std::size_t kVerdictColumns = 5;
constexpr std::size_t kRangesShown = 30;
// In the list above the table; the others are counted.
constexpr std::size_t kNodesListed = 16;

const char* HealthName(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warn";
    case Health::kFail:
      return "FAIL";
  }
  return "";
}

const char* JsonHealthName(Health health) {
  return health == Health::kFail ? "fail" : HealthName(health);
}

// A word that is longer than a line is not broken, so that a path can be copied.
std::vector<std::string> Wrap(absl::string_view text, std::size_t columns) {
  std::vector<std::string> lines(1);
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > columns)
      lines.emplace_back();
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return lines;
}

bool IsOfAll(const Checkup& checkup, const Finding& finding) {
  return finding.nodes.empty() || finding.nodes.size() == checkup.nodes.size();
}

std::string Nodes(const Checkup& checkup, const Finding& finding) {
  if (IsOfAll(checkup, finding)) return "all";
  const std::string ranges = RangesText(finding.nodes);
  return ranges.size() <= kNodesColumnsMax ? ranges : absl::StrCat(finding.nodes.size(), " nodes");
}

// With the node numbers, if they do not fit into their column.
std::string TextOf(const Checkup& checkup, const Finding& finding) {
  if (IsOfAll(checkup, finding)) return finding.text;
  std::string ranges = RangesText(finding.nodes);
  if (ranges.size() <= kNodesColumnsMax) return finding.text;
  if (ranges.size() > kRangesShown) ranges = ranges.substr(0, kRangesShown) + "...";
  return absl::StrCat(ranges, ": ", finding.text);
}

int Count(const std::vector<Finding>& findings, Health health) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.health == health; }));
}

std::string NodeLines(const Checkup& checkup) {
  std::string text;
  const std::size_t shown = std::min(checkup.nodes.size(), kNodesListed);
  for (std::size_t i = 0; i < shown; ++i) {
    const NodeFacts& node = checkup.nodes[i];
    absl::StrAppend(&text, "  node ", node.node, "  ", node.host,
                    node.address.empty() ? "" : absl::StrCat("  ", node.address),
                    node.interface.empty() ? "" : absl::StrCat(" on ", node.interface), "\n");
  }
  if (shown < checkup.nodes.size())
    absl::StrAppend(&text, "  and ", checkup.nodes.size() - shown, " more\n");
  return text;
}

}  // namespace

std::string DoctorText(const Checkup& checkup, const std::vector<Finding>& findings) {
  std::size_t nodes_columns = kNodesColumnsMin;
  for (const Finding& finding : findings) {
    nodes_columns = std::max(nodes_columns, Nodes(checkup, finding).size());
  }
  const bool alone = checkup.nodes_wanted == 1;
  const std::size_t indent = kCheckColumns + 1 + (alone ? 0 : nodes_columns + 1) + kVerdictColumns;
  const auto row = [&](absl::string_view check, absl::string_view nodes, absl::string_view word) {
    std::string line = absl::StrFormat("%-*s ", static_cast<int>(kCheckColumns), check);
    if (!alone) absl::StrAppendFormat(&line, "%-*s ", static_cast<int>(nodes_columns), nodes);
    absl::StrAppendFormat(&line, "%-*s", static_cast<int>(kVerdictColumns), word);
    return line;
  };
  std::string text = NodeLines(checkup);
  if (!alone)
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(row("CHECK", "NODES", "")), "\n");
  std::string before;
  for (const Finding& finding : findings) {
    const std::vector<std::string> lines = Wrap(TextOf(checkup, finding), kColumns - indent);
    absl::StrAppend(&text,
                    row(finding.check == before ? "" : finding.check, Nodes(checkup, finding),
                        HealthName(finding.health)),
                    lines.front(), "\n");
    for (std::size_t i = 1; i < lines.size(); ++i)
      absl::StrAppend(&text, std::string(indent, ' '), lines[i], "\n");
    before = finding.check;
  }
  const int fails = Count(findings, Health::kFail);
  const int warnings = Count(findings, Health::kWarning);
  absl::StrAppend(&text,
                  fails + warnings == 0
                      ? "nothing found that would keep a run from working"
                      : absl::StrCat(Counted(fails, "FAIL"), ", ", Counted(warnings, "warning")),
                  "\n");
  return text;
}

std::string DoctorJson(const Checkup& checkup, const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  Json nodes = Json::array();
  for (const NodeFacts& node : checkup.nodes) {
    nodes.push_back({{"node", node.node},
                     {"host", node.host},
                     {"address", node.address},
                     {"interface", node.interface},
                     {"version", node.version},
                     {"workers", node.workers},
                     {"cpus", node.cpus},
                     {"gpus", node.gpus},
                     {"driver", node.driver},
                     {"libraries", node.libraries},
                     {"packages", node.packages}});
  }
  Json pairs = Json::array();
  for (const PairFacts& pair : checkup.pairs) {
    const bool works = pair.error.empty();
    pairs.push_back(
        {{"from", pair.from},
         {"to", pair.to},
         {"error", works ? Json(nullptr) : Json(pair.error)},
         {"round_trip_seconds", works ? Json(pair.rtt_seconds) : Json(nullptr)},
         {"clock_ahead_seconds", works ? Json(pair.skew_seconds) : Json(nullptr)},
         {"clock_uncertainty_seconds", works ? Json(pair.skew_uncertainty) : Json(nullptr)},
         {"bytes_per_second",
          pair.bytes_per_second > 0 ? Json(pair.bytes_per_second) : Json(nullptr)}});
  }
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"verdict", JsonHealthName(finding.health)},
                    {"nodes", finding.nodes},
                    {"text", finding.text}});
  }
  const Json whole = {{"success", ExitCodeOf(findings) == 0},
                      {"nodes_wanted", checkup.nodes_wanted},
                      {"fails", Count(findings, Health::kFail)},
                      {"warnings", Count(findings, Health::kWarning)},
                      {"findings", std::move(list)},
                      {"nodes", std::move(nodes)},
                      {"pairs", std::move(pairs)}};
  return JsonText(whole) + "\n";
}

}  // namespace ddprun
