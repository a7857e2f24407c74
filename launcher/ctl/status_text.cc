// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/status_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/json_text.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

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

std::string Ranks(int first, int count) {
  if (count == 1) return absl::StrCat(first);
  return absl::StrCat(first, "-", first + count - 1);
}

// "0-7", or of several programs "0-5 trainer, 6-7 eval".
std::string Ranks(const NodeStatus& node) {
  if (node.ranks == 0) return "-";
  if (node.roles.empty()) return Ranks(node.rank_first, node.ranks);
  std::string text;
  int first = node.rank_first;
  for (const RoleWorkers& role : node.roles) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Ranks(first, role.workers), " ", role.name);
    first += role.workers;
  }
  return text;
}

std::string Rank(const NodeStatus& node) {
  return node.node_rank.has_value() ? absl::StrCat(*node.node_rank) : "-";
}

std::string Rate(const Progress& progress) {
  if (progress.rate <= 0) return "";
  const std::string number = progress.rate < 10    ? absl::StrFormat("%.2f", progress.rate)
                             : progress.rate < 1e9 ? absl::StrFormat("%.0f", progress.rate)
                                                   : absl::StrFormat("%.3g", progress.rate);
  return absl::StrCat(number, " ", progress.rate_unit.empty() ? "steps" : progress.rate_unit, "/s");
}

std::string ProgressLine(const RunStatus& run) {
  const Progress& progress = *run.progress;
  std::string line;
  const auto add = [&line](const std::string& words) {
    if (!words.empty()) absl::StrAppend(&line, line.empty() ? "  " : ", ", words);
  };
  if (progress.step >= 0) add(absl::StrCat("step ", progress.step));
  if (progress.epoch >= 0) add(absl::StrCat("epoch ", progress.epoch));
  add(Rate(progress));
  if (line.empty()) add(progress.section);
  return absl::StrCat(line.empty() ? "  progress" : line, ", ", Seconds(run.progress_age), " ago");
}

using Row = std::vector<std::string>;

void AddProgress(const NodeStatus& node, Row& row) {
  if (!node.progress) {
    row.insert(row.end(), {"-", "-", "-", "-"});
    return;
  }
  const Progress& progress = *node.progress;
  const auto dash = [](std::string text) { return text.empty() ? "-" : text; };
  row.push_back(progress.step >= 0 ? absl::StrCat(progress.step) : "-");
  row.push_back(dash(Rate(progress)));
  row.push_back(dash(progress.section));
  row.push_back(absl::StrCat(Seconds(node.progress_age), " ago"));
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

std::string Nodes(const RunStatus& run) {
  const std::string wanted = run.nodes_min == run.nodes_max
                                 ? absl::StrCat(run.nodes_max)
                                 : absl::StrCat(run.nodes_min, ":", run.nodes_max);
  return absl::StrCat(run.node_count, run.node_count == 1 ? " node is" : " nodes are", " here of ",
                      wanted);
}

std::vector<std::string> NodeLines(const std::vector<const NodeStatus*>& nodes) {
  std::vector<Row> rows = {{"NODE", "HOST", "ADDRESS", "STATE", "RANKS", "HEARD"}};
  const bool places = std::any_of(nodes.begin(), nodes.end(),
                                  [](const NodeStatus* node) { return !node->topology.empty(); });
  if (places) rows[0].push_back("TOPOLOGY");
  const bool progress = std::any_of(nodes.begin(), nodes.end(), [](const NodeStatus* node) {
    return node->progress.has_value();
  });
  if (progress) rows[0].insert(rows[0].end(), {"STEP", "RATE", "DOING", "CHANGED"});
  for (const NodeStatus* node : nodes) {
    rows.push_back({Rank(*node), node->host, node->address, StateName(node->state), Ranks(*node),
                    absl::StrCat(Seconds(node->silent), " ago")});
    if (places) rows.back().push_back(node->topology.empty() ? "-" : node->topology);
    if (progress) AddProgress(*node, rows.back());
  }
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i]);
      if (i + 1 < row.size()) line.append(widths[i] + 2 - row[i].size(), ' ');
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void AppendRun(const RunStatus& run, std::string& out) {
  for (const std::string& line : RunLines(run)) absl::StrAppend(&out, line, "\n");
  std::vector<const NodeStatus*> nodes;
  for (const NodeStatus& node : run.nodes) nodes.push_back(&node);
  if (!nodes.empty()) {
    for (const std::string& line : NodeLines(nodes)) absl::StrAppend(&out, line, "\n");
  }
  const int more = run.node_count - static_cast<int>(run.nodes.size());
  if (more > 0) absl::StrAppend(&out, "  and ", more, " more nodes\n");
}

// Null also for a loss that is not finite.
Json Finite(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json(nullptr);
}

// null: not known.
Json Known(std::int64_t number) { return number >= 0 ? Json(number) : Json(nullptr); }

Json ToJson(const Failure& failure) {
  return {{"sentence", ToSentence(failure)},
          {"kind", CodeName(failure.kind)},
          {"advice", failure.advice.empty() ? Json(nullptr) : Json(failure.advice)},
          {"host", failure.host},
          {"node_rank", Known(failure.node_rank)},
          {"rank", Known(failure.rank)},
          {"role", failure.role.empty() ? Json(nullptr) : Json(failure.role)},
          {"exit_code", ToExitCode(failure)},
          {"signal", failure.signal > 0 ? Json(SignalName(failure.signal)) : Json(nullptr)}};
}

Json ToJson(const std::optional<Progress>& progress, std::chrono::milliseconds age) {
  if (!progress) return nullptr;
  return {{"step", Known(progress->step)},
          {"epoch", Known(progress->epoch)},
          {"rate", progress->rate > 0 ? Json(progress->rate) : Json(nullptr)},
          {"rate_unit", progress->rate_unit},
          {"accuracy", Finite(progress->accuracy)},
          {"section", progress->section},
          {"slow_rank", Known(progress->slow_rank)},
          {"slowness", progress->slow_rank >= 0 ? Json(progress->slowness) : Json(nullptr)},
          {"damages", Known(progress->damages)},
          {"damaged_rank", Known(progress->damaged_rank)},
          {"age_ms", age.count()}};
}

Json ToJson(const RankReport& report, int rank) {
  return {{"rank", rank},
          {"step", Known(report.step)},
          {"rate", report.rate > 0 ? Json(report.rate) : Json(nullptr)},
          {"loss", Finite(report.loss)},
          {"section", report.section},
          {"slowness", report.slowness > 0 ? Json(report.slowness) : Json(nullptr)},
          {"hung", report.hung},
          {"ended", report.ended},
          {"memory", report.memory > 0 ? Json(report.memory) : Json(nullptr)},
          {"gpu_memory", report.gpu_memory > 0 ? Json(report.gpu_memory) : Json(nullptr)}};
}

Json ToJson(const RankTime& time) {
  if (time.Sum().count() == 0) return nullptr;
  Json json = Json::object();
  ForEachClass(time, [&json](TimeClass kind, double seconds) { json[NameOf(kind)] = seconds; });
  return json;
}

Json ToJson(const std::optional<Preemption>& preemption) {
  if (!preemption) return nullptr;
  return {{"host", preemption->host},
          {"node_rank", Known(preemption->node_rank)},
          {"reason", preemption->reason},
          {"remaining_ms", preemption->remaining.count()}};
}

Json ToJson(const NodeStatus& node) {
  Json ranks = Json::array();
  for (int i = 0; i < node.ranks; ++i) ranks.push_back(node.rank_first + i);
  Json roles = Json::array();
  int first = node.rank_first;
  for (const RoleWorkers& role : node.roles) {
    Json its = Json::array();
    for (int i = 0; i < role.workers; ++i) its.push_back(first++);
    roles.push_back({{"name", role.name}, {"ranks", std::move(its)}});
  }
  Json workers = Json::array();
  for (const RankReport& report : node.rank_reports)
    workers.push_back(ToJson(report, node.rank_first + static_cast<int>(workers.size())));
  return {{"node_id", node.node_id.value},
          {"node_rank", Known(node.node_rank.value_or(-1))},
          {"host", node.host},
          {"address", node.address},
          {"state", StateName(node.state)},
          {"ranks", std::move(ranks)},
          {"roles", std::move(roles)},
          {"topology", node.topology.empty() ? Json(nullptr) : Json(node.topology)},
          {"silent_ms", node.silent.count()},
          {"progress", ToJson(node.progress, node.progress_age)},
          {"workers", std::move(workers)}};
}

Json ToJson(const RunStatus& run) {
  Json nodes = Json::array();
  for (const NodeStatus& node : run.nodes) nodes.push_back(ToJson(node));
  Json left_out = Json::array();
  for (const LeftOutStatus& host : run.left_out) {
    left_out.push_back({{"host", host.host},
                        {"failures", host.failures},
                        {"remaining_ms", host.remaining.count()}});
  }
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
      {"rank_order", RankOrderName(run.rank_order)},
      {"world_size", run.world_size},
      {"restarts_used", run.restarts_used},
      {"restarts_max", run.restarts_max},
      {"restarts_forgiven", run.restarts_forgiven},
      {"last_failure", run.last_failure.has_value() ? ToJson(*run.last_failure) : Json(nullptr)},
      {"verdict", std::move(verdict)},
      {"node_count", run.node_count},
      {"nodes", std::move(nodes)},
      {"left_out", std::move(left_out)},
      {"progress", ToJson(run.progress, run.progress_age)},
      {"loss", Finite(run.loss)},
      {"rank_seconds", ToJson(run.time)},
      {"preemption", ToJson(run.preemption)},
      {"collectives", run.still.empty() ? Json(nullptr) : Json(ToSentence(run.still))}};
}

}  // namespace

const char* StateName(NodeState state) {
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

std::vector<std::string> RunLines(const RunStatus& run, bool figures) {
  std::string first =
      absl::StrCat("run ", run.run_id, ": ", Name(run.phase), ", round ", ToNumber(run.round));
  if (run.phase == RunPhase::kSealed) absl::StrAppend(&first, ", world size ", run.world_size);
  if (run.phase != RunPhase::kClosed) absl::StrAppend(&first, ", ", Nodes(run));
  absl::StrAppend(&first, ", ", run.restarts_used - run.restarts_forgiven, " of ", run.restarts_max,
                  " restarts used");
  if (run.restarts_forgiven > 0) absl::StrAppend(&first, ", ", run.restarts_used, " in all");
  if (run.rank_order != RankOrder::kJoin)
    absl::StrAppend(&first, ", ranks by ", RankOrderName(run.rank_order));
  std::vector<std::string> lines = {std::move(first)};
  if (!run.reason.empty()) {
    lines.push_back(absl::StrCat("  ", run.reason));
    if (run.remaining.count() > 0) {
      absl::StrAppend(&lines.back(), "; ", Seconds(run.remaining), " left");
    }
  }
  if (run.preemption.has_value()) lines.push_back(absl::StrCat("  ", ToSentence(*run.preemption)));
  if (figures && run.progress.has_value()) lines.push_back(ProgressLine(run));
  if (const std::string where = ToSentence(run.still); !where.empty())
    lines.push_back(absl::StrCat("  collectives: ", where));
  if (const std::string goodput = GoodputText(run.time); figures && !goodput.empty())
    lines.push_back(absl::StrCat("  goodput: ", goodput));
  for (const NodeStatus& node : run.nodes) {
    if (!node.progress) continue;
    const Progress& progress = *node.progress;
    if (progress.slow_rank >= 0)
      lines.push_back(
          absl::StrCat("  ", SlowRankText(progress.slow_rank, node.host, progress.slowness)));
    if (progress.damages > 0)
      lines.push_back(
          absl::StrCat("  ", DamagedRankText(progress.damaged_rank, node.host, progress.damages)));
  }
  if (run.verdict.has_value()) {
    lines.push_back(absl::StrCat("  ended with exit code ", run.verdict->exit_code,
                                 run.verdict->success ? ": all workers succeeded" : ""));
  }
  // While the next round forms, `reason` already contains it.
  if (run.last_failure.has_value() && run.phase != RunPhase::kForming) {
    lines.push_back(absl::StrCat("  last failure: ", ToSentence(*run.last_failure)));
  }
  for (const LeftOutStatus& left_out : run.left_out) {
    lines.push_back(absl::StrCat("  node ", left_out.host, " is left out after ", left_out.failures,
                                 left_out.failures == 1 ? " failure" : " failures"));
    if (left_out.remaining.count() > 0) {
      absl::StrAppend(&lines.back(), ", for ", Seconds(left_out.remaining), " yet");
    }
  }
  return lines;
}

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

std::vector<std::string> StatusLines(const ServiceStatus& status) {
  std::vector<std::string> lines;
  for (const RunStatus& run : status.runs) {
    std::vector<const NodeStatus*> nodes;
    for (const NodeStatus& node : run.nodes) nodes.push_back(&node);
    lines.push_back(absl::StrCat(RunLines(run).front(), nodes.empty() ? "" : "; ", Counted(nodes)));
  }
  return lines;
}

std::string StatusJson(const ServiceStatus& status, const std::string& service) {
  Json runs = Json::array();
  for (const RunStatus& run : status.runs) runs.push_back(ToJson(run));
  const Json all = {
      {"service", service}, {"version", status.software_version}, {"runs", std::move(runs)}};
  return absl::StrCat(JsonText(all), "\n");
}

}  // namespace ddprun
