// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "launcher/ctl/status_text.h"

namespace ddprun {
namespace {

// Lines of a run that are not nodes: its state, what it waits for, its progress, its goodput, a
// slow rank, its last failure.
constexpr int kLinesOfRunMax = 7;

// The order in which nodes are shown.
int Worst(NodeState state) {
  switch (state) {
    case NodeState::kAway:
      return 0;
    case NodeState::kStopping:
      return 1;
    case NodeState::kStopped:
      return 2;
    case NodeState::kWaiting:
      return 3;
    case NodeState::kRunning:
      return 4;
    case NodeState::kSpare:
      return 5;
    case NodeState::kSucceeded:
      return 6;
  }
  return 7;
}

// Counts UTF-8 characters: bytes that are no continuation bytes.
std::string CutTo(const std::string& line, int columns) {
  int shown = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) continue;
    if (++shown > columns) return line.substr(0, i);
  }
  return line;
}

std::string Counted(const std::vector<const NodeStatus*>& nodes) {
  std::map<std::string, int> states;
  for (const NodeStatus* node : nodes) ++states[StateName(node->state)];
  std::string words;
  for (const auto& [state, count] : states) {
    absl::StrAppend(&words, words.empty() ? "" : ", ", count, " ", state);
  }
  return words;
}

// The run, its table of nodes cut to `rows` lines in all.
void AddRun(const RunStatus& run, int rows, std::vector<std::string>& lines) {
  std::vector<std::string> head = RunLines(run);
  lines.insert(lines.end(), head.begin(), head.end());
  const int room = rows - static_cast<int>(head.size()) - 1;  // less the table's own heading
  std::vector<const NodeStatus*> nodes;
  for (const NodeStatus& node : run.nodes) nodes.push_back(&node);
  if (nodes.empty() || room < 1) return;
  std::vector<const NodeStatus*> cut;
  const bool fits = static_cast<int>(nodes.size()) <= room && run.node_count <= room;
  if (!fits) {
    std::stable_sort(nodes.begin(), nodes.end(), [](const NodeStatus* a, const NodeStatus* b) {
      return std::tuple(Worst(a->state), b->silent) < std::tuple(Worst(b->state), a->silent);
    });
    const auto shown = static_cast<std::size_t>(std::max(0, room - 1));
    if (shown < nodes.size()) {
      cut.assign(nodes.begin() + static_cast<std::ptrdiff_t>(shown), nodes.end());
      nodes.resize(shown);
    }
  }
  for (std::string& line : NodeLines(nodes)) lines.push_back(std::move(line));
  const int unknown = run.node_count - static_cast<int>(run.nodes.size());
  if (cut.empty() && unknown <= 0) return;
  std::string more = absl::StrCat(
      "  and ", cut.size() + static_cast<std::size_t>(std::max(0, unknown)), " more nodes");
  if (!cut.empty()) absl::StrAppend(&more, ": ", Counted(cut));
  lines.push_back(std::move(more));
}

}  // namespace

std::vector<std::string> StatusScreen(const ServiceStatus& status, const std::string& heading,
                                      const std::string& trouble, ScreenSize size) {
  std::vector<std::string> lines = {heading};
  if (!trouble.empty()) lines.push_back(trouble);
  const int runs = std::max(1, static_cast<int>(status.runs.size()));
  const int room = size.rows - static_cast<int>(lines.size());
  // All runs get the same number of lines, even if one needs fewer.
  const int each = std::max(kLinesOfRunMax, room / runs);
  for (const RunStatus& run : status.runs) AddRun(run, each, lines);
  if (status.runs.empty() && trouble.empty()) lines.push_back("no run");
  if (static_cast<int>(lines.size()) > size.rows) {
    lines.resize(static_cast<std::size_t>(std::max(1, size.rows)));
  }
  for (std::string& line : lines) line = CutTo(line, size.columns);
  return lines;
}

std::vector<std::string> StatusLines(const ServiceStatus& status) {
  std::vector<std::string> lines;
  for (const RunStatus& run : status.runs) {
    std::vector<const NodeStatus*> nodes;
    for (const NodeStatus& node : run.nodes) nodes.push_back(&node);
    lines.push_back(absl::StrCat(RunLines(run).front(), nodes.empty() ? "" : "; ", Counted(nodes)));
  }
  return lines;
}

}  // namespace ddprun
