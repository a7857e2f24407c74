// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_sample.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "proto/json_text.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();

SampledNode NodeOf(const NodeStatus& node) {
  return {.id = node.node_id.value,
          .host = node.host,
          .node_rank = node.node_rank.value_or(-1),
          .state = node.state,
          .rank_first = node.rank_first,
          .ranks = node.ranks,
          .section = "",
          .hung = {}};
}

template <typename Number>
Number NumberOr(const Json& json, const char* name, Number otherwise) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number() ? it->get<Number>() : otherwise;
}

// A number, or null for one that is not finite; a member that is not there is absent.
std::optional<double> Figure(const Json& json, const char* name) {
  const auto it = json.find(name);
  if (it == json.end()) return std::nullopt;
  return it->is_number() ? it->get<double>() : kNan;
}

std::optional<SampledNode> ParseNode(const Json& json) {
  if (!json.is_array() || json.size() != 6 || !json[0].is_string() || !json[2].is_string())
    return std::nullopt;
  for (const int i : {1, 3, 4, 5}) {
    if (!json[i].is_number_integer()) return std::nullopt;
  }
  const int state = json[3].get<int>();
  if (state < static_cast<int>(NodeState::kWaiting) || state > static_cast<int>(NodeState::kAway))
    return std::nullopt;
  return SampledNode{.id = json[0].get<std::string>(),
                     .host = json[2].get<std::string>(),
                     .node_rank = json[1].get<int>(),
                     .state = static_cast<NodeState>(state),
                     .rank_first = json[4].get<int>(),
                     .ranks = json[5].get<int>(),
                     .section = "",
                     .hung = {}};
}

}  // namespace

std::vector<SampledNode> NodesOf(const RunStatus& run) {
  std::vector<SampledNode> nodes;
  for (const NodeStatus& node : run.nodes) nodes.push_back(NodeOf(node));
  return nodes;
}

RunSample SampleOf(const RunStatus& run, std::int64_t time_ms) {
  RunSample sample;
  sample.time_ms = time_ms;
  sample.round = ToNumber(run.round);
  sample.world_size = run.world_size;
  if (run.progress) {
    sample.step = run.progress->step;
    sample.epoch = run.progress->epoch;
    sample.rate = run.progress->rate;
    sample.rate_unit = run.progress->rate_unit;
    sample.accuracy = run.progress->accuracy;
  }
  sample.loss = run.loss;
  if (const auto sum = run.time.Sum(); sum.count() > 0) {
    sample.goodput = static_cast<double>(run.time[TimeClass::kTraining].count()) /
                     static_cast<double>(sum.count());
  }
  sample.nodes = NodesOf(run);
  for (std::size_t i = 0; i < run.nodes.size(); ++i) {
    SampledNode& node = (*sample.nodes)[i];
    const std::vector<RankReport>& ranks = run.nodes[i].rank_reports;
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      if (ranks[local].hung) node.hung.push_back(node.rank_first + static_cast<int>(local));
    }
    const std::optional<Progress>& progress = run.nodes[i].progress;
    if (!progress) continue;
    node.step = progress->step;
    node.rate = progress->rate;
    node.section = progress->section;
    node.slow_rank = progress->slow_rank;
  }
  return sample;
}

std::string SampleLine(const RunSample& sample, std::size_t bytes_max) {
  Json json = {
      {"time_ms", sample.time_ms}, {"round", sample.round}, {"world_size", sample.world_size}};
  if (sample.step >= 0) json["step"] = sample.step;
  if (sample.epoch >= 0) json["epoch"] = sample.epoch;
  if (sample.rate > 0) json["rate"] = sample.rate;
  if (!sample.rate_unit.empty()) json["rate_unit"] = sample.rate_unit;
  if (sample.loss) json["loss"] = *sample.loss;  // null, if it is not finite
  if (sample.accuracy) json["accuracy"] = *sample.accuracy;
  if (sample.goodput) json["goodput"] = *sample.goodput;
  std::string without = JsonText(json);
  if (!sample.nodes) return without;
  Json& nodes = json["nodes"] = Json::array();
  for (const SampledNode& node : *sample.nodes) {
    nodes.push_back({Utf8Name(node.id), node.node_rank, Utf8Name(node.host),
                     static_cast<int>(node.state), node.rank_first, node.ranks});
    if (nodes.size() > bytes_max) return without;  // each has more than a byte
  }
  std::string line = JsonText(json);
  return line.size() <= bytes_max ? line : without;
}

std::optional<RunSample> ParseSample(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || NumberOr<std::int64_t>(json, "time_ms", 0) <= 0) return std::nullopt;
  RunSample sample;
  sample.time_ms = NumberOr<std::int64_t>(json, "time_ms", 0);
  sample.round = NumberOr<std::uint64_t>(json, "round", 0);
  sample.world_size = NumberOr(json, "world_size", 0);
  sample.step = NumberOr<std::int64_t>(json, "step", -1);
  sample.epoch = NumberOr<std::int64_t>(json, "epoch", -1);
  sample.rate = NumberOr(json, "rate", 0.0);
  if (const auto unit = json.find("rate_unit"); unit != json.end() && unit->is_string())
    sample.rate_unit = unit->get<std::string>();
  sample.loss = Figure(json, "loss");
  sample.accuracy = Figure(json, "accuracy");
  sample.goodput = Figure(json, "goodput");
  const auto nodes = json.find("nodes");
  if (nodes == json.end() || !nodes->is_array()) return sample;
  sample.nodes.emplace();
  for (const Json& node : *nodes) {
    if (auto parsed = ParseNode(node)) sample.nodes->push_back(*std::move(parsed));
  }
  return sample;
}

std::chrono::milliseconds SampleInterval(std::chrono::milliseconds elapsed) {
  using std::chrono::milliseconds;
  constexpr int kSamples = 500;
  return std::clamp(elapsed / kSamples, milliseconds(1000), milliseconds(60'000));
}

}  // namespace ddprun
