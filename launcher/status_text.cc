// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/signal_name.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

const char* Name(NodeState state) {
  switch (state) {
    case NodeState::kWaiting:
      return "waiting";
    case NodeState::kRunning:
      return "running";
    case NodeState::kSucceeded:
      return "succeeded";
    case NodeState::kStopping:
      return "stopping";
    case NodeState::kStopped:
      return "stopped";
    case NodeState::kSpare:
      return "spare";
    case NodeState::kAway:
      return "away";
  }
  return "";
}

const char* Name(RunPhase phase) {
  switch (phase) {
    case RunPhase::kForming:
      return "forming";
    case RunPhase::kSealed:
      return "running";
    case RunPhase::kBroken:
      return "stopping";
    case RunPhase::kClosed:
      return "over";
  }
  return "";
}

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrFormat("%.1f s", static_cast<double>(time.count()) / 1000.0);
}

std::string Ranks(const NodeStatus& node) {
  if (node.ranks == 0) return "-";
  if (node.ranks == 1) return absl::StrCat(node.rank_first);
  return absl::StrCat(node.rank_first, "-", node.rank_first + node.ranks - 1);
}

std::string Rank(const NodeStatus& node) {
  return node.node_rank.has_value() ? absl::StrCat(*node.node_rank) : "-";
}

using Row = std::array<std::string, 6>;

void AppendTable(const RunStatus& run, std::string& out) {
  std::vector<Row> rows = {{"NODE", "HOST", "ADDRESS", "STATE", "RANKS", "HEARD"}};
  for (const NodeStatus& node : run.nodes) {
    rows.push_back({Rank(node), node.host, node.address, Name(node.state), Ranks(node),
                    absl::StrCat(Seconds(node.silent), " ago")});
  }
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i]);
      if (i + 1 < row.size()) line.append(widths[i] + 2 - row[i].size(), ' ');
    }
    absl::StrAppend(&out, line, "\n");
  }
}

std::string Nodes(const RunStatus& run) {
  const std::string wanted = run.nodes_min == run.nodes_max
                                 ? absl::StrCat(run.nodes_max)
                                 : absl::StrCat(run.nodes_min, ":", run.nodes_max);
  return absl::StrCat(run.node_count, run.node_count == 1 ? " node is" : " nodes are", " here of ",
                      wanted);
}

void AppendRun(const RunStatus& run, std::string& out) {
  absl::StrAppend(&out, "run ", run.run_id, ": ", Name(run.phase), ", round ", ToNumber(run.round));
  if (run.phase == RunPhase::kSealed) absl::StrAppend(&out, ", world size ", run.world_size);
  if (run.phase != RunPhase::kClosed) absl::StrAppend(&out, ", ", Nodes(run));
  absl::StrAppend(&out, ", ", run.restarts_used, " of ", run.restarts_max, " restarts used\n");
  if (!run.reason.empty()) {
    absl::StrAppend(&out, "  ", run.reason);
    if (run.remaining.count() > 0) absl::StrAppend(&out, "; ", Seconds(run.remaining), " left");
    absl::StrAppend(&out, "\n");
  }
  if (run.verdict.has_value()) {
    absl::StrAppend(&out, "  ended with exit code ", run.verdict->exit_code,
                    run.verdict->success ? ": all workers succeeded\n" : "\n");
  }
  // While the next round forms, what is waited for has it already.
  if (run.last_failure.has_value() && run.phase != RunPhase::kForming) {
    absl::StrAppend(&out, "  last failure: ", ToSentence(*run.last_failure), "\n");
  }
  if (!run.nodes.empty()) AppendTable(run, out);
  const int more = run.node_count - static_cast<int>(run.nodes.size());
  if (more > 0) absl::StrAppend(&out, "  and ", more, " more nodes\n");
}

Json ToJson(const Failure& failure) {
  const auto known = [](int number) { return number >= 0 ? Json(number) : Json(nullptr); };
  return {{"sentence", ToSentence(failure)},
          {"host", failure.host},
          {"node_rank", known(failure.node_rank)},
          {"rank", known(failure.rank)},
          {"exit_code", ToExitCode(failure)},
          {"signal", failure.signal > 0 ? Json(SignalName(failure.signal)) : Json(nullptr)}};
}

Json ToJson(const NodeStatus& node) {
  Json ranks = Json::array();
  for (int i = 0; i < node.ranks; ++i) ranks.push_back(node.rank_first + i);
  return {{"node_id", node.node_id.value},
          {"node_rank", node.node_rank.has_value() ? Json(*node.node_rank) : Json(nullptr)},
          {"host", node.host},
          {"address", node.address},
          {"state", Name(node.state)},
          {"ranks", std::move(ranks)},
          {"silent_ms", node.silent.count()}};
}

Json ToJson(const RunStatus& run) {
  Json nodes = Json::array();
  for (const NodeStatus& node : run.nodes) nodes.push_back(ToJson(node));
  Json verdict = nullptr;
  if (run.verdict.has_value()) {
    verdict = {{"success", run.verdict->success}, {"exit_code", run.verdict->exit_code}};
  }
  return {
      {"run_id", run.run_id},
      {"phase", Name(run.phase)},
      {"round", ToNumber(run.round)},
      {"reason", run.reason},
      {"remaining_ms", run.remaining.count()},
      {"nodes_min", run.nodes_min},
      {"nodes_max", run.nodes_max},
      {"world_size", run.world_size},
      {"restarts_used", run.restarts_used},
      {"restarts_max", run.restarts_max},
      {"last_failure", run.last_failure.has_value() ? ToJson(*run.last_failure) : Json(nullptr)},
      {"verdict", std::move(verdict)},
      {"node_count", run.node_count},
      {"nodes", std::move(nodes)}};
}

}  // namespace

std::string StatusText(const ServiceStatus& status, const std::string& service) {
  if (status.runs.empty()) {
    return absl::StrCat("the rendezvous service at ", service, " has no run\n");
  }
  std::string out;
  for (const RunStatus& run : status.runs) {
    if (!out.empty()) absl::StrAppend(&out, "\n");
    AppendRun(run, out);
  }
  return out;
}

std::string StatusJson(const ServiceStatus& status, const std::string& service) {
  Json runs = Json::array();
  for (const RunStatus& run : status.runs) runs.push_back(ToJson(run));
  const Json all = {
      {"service", service}, {"version", status.software_version}, {"runs", std::move(runs)}};
  // Names come from other machines: what is no UTF-8 must not end this process.
  return absl::StrCat(all.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace ddprun
