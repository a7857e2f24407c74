// SPDX-License-Identifier: Apache-2.0
#include "launcher/web/web_state.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "launcher/base/limits.h"
#include "proto/json_text.h"
#include "proto/text.h"
#include "rendezvous/base/printable.h"

namespace ddprun {

extern const char* const kWebPageSource;

namespace {

using Json = WebState::Json;

constexpr int kGone = 0;

Json Known(double number, bool known) {
  return known && std::isfinite(number) ? Json(number) : Json(nullptr);
}

Json Known(const std::optional<double>& number) {
  return Known(number.value_or(0), number.has_value());
}

Json SampleJson(const RunSample& sample) {
  return Json::array({sample.time_ms, sample.round, sample.world_size, sample.step, sample.epoch,
                      Known(sample.rate, sample.rate > 0), Known(sample.loss),
                      Known(sample.goodput), Known(sample.accuracy)});
}

std::int64_t TimeOf(const Json& sample) { return sample[0].get<std::int64_t>(); }

std::int64_t TimeOfEvent(const Json& event) {
  absl::Time time;
  const auto it = event.find("time");
  if (it == event.end() || !it->is_string() ||
      !absl::ParseTime(absl::RFC3339_full, it->get<std::string>(), &time, nullptr))
    return 0;
  return absl::ToUnixMillis(time);
}

template <typename Element>
void Keep(std::deque<Element>& all, std::size_t max) {
  while (all.size() > max) all.pop_front();
}

// A delta that no page has taken is bounded as the whole is.
void Append(Json& delta, const char* name, Json element, std::size_t max) {
  Json& all = delta[name];
  if (all.is_null()) all = Json::array();
  if (all.size() >= max) all.erase(all.begin());
  all.push_back(std::move(element));
}

}  // namespace

WebState::WebState(const std::string& name)
    : spacing_ms_(kWebPollInterval / std::chrono::milliseconds(1)) {
  run_["name"] = Utf8Name(name);
}

void WebState::OnRun(const Json& run) {
  Json next = run;
  next["name"] = run_["name"];
  if (next == run_) return;
  run_ = std::move(next);
  run_changed_ = true;
}

void WebState::OnSample(const RunSample& sample) {
  const std::int64_t last = samples_.empty() ? sample.time_ms : TimeOf(samples_.back());
  shift_ms_ = std::max(shift_ms_, last - sample.time_ms);
  const std::int64_t time_ms = sample.time_ms + shift_ms_;
  if (sample.nodes) OnNodes(*sample.nodes, time_ms);
  Json point = SampleJson(sample);
  point[0] = time_ms;
  Append(delta_, "samples", point, kWebPointsMax);
  if (!sample.rate_unit.empty() && run_["rate_unit"] != sample.rate_unit) {
    run_["rate_unit"] = Utf8Name(sample.rate_unit);
    run_changed_ = true;
  }
  // The last point stands for those that are nearer than the spacing.
  const std::size_t count = samples_.size();
  const bool near = count >= 2 && TimeOf(samples_[count - 1]) - TimeOf(samples_[count - 2]) <
                                      spacing_ms_ - spacing_ms_ / 10;
  if (near) samples_.pop_back();
  samples_.push_back(std::move(point));
  if (samples_.size() > kWebPointsMax) Thin();
}

void WebState::Thin() {
  std::vector<Json> kept;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (i % 2 == 0 || i + 1 == samples_.size()) kept.push_back(std::move(samples_[i]));
  }
  samples_ = std::move(kept);
  spacing_ms_ *= 2;
}

void WebState::OnNodes(const std::vector<SampledNode>& nodes, std::int64_t time_ms) {
  std::set<std::size_t> here;
  for (const SampledNode& node : nodes) {
    auto slot = slots_.find(node.id);
    if (slot == slots_.end()) {
      if (nodes_.size() >= kWebNodesMax) continue;
      slot = slots_.emplace(node.id, nodes_.size()).first;
      nodes_.push_back({.now = {}, .gone = true});
    }
    here.insert(slot->second);
    Put(slot->second, node, time_ms);
  }
  for (std::size_t slot = 0; slot < nodes_.size(); ++slot) {
    if (nodes_[slot].gone || here.contains(slot)) continue;
    const int before = static_cast<int>(nodes_[slot].now.state);
    nodes_[slot].gone = true;
    changes_.push_back({time_ms, slot, before, kGone});
    delta_["nodes"][std::to_string(slot)] = NodeJson(slot);
    Append(delta_, "changes", Json::array({time_ms, slot, before, kGone}), kWebChangesMax);
  }
  Keep(changes_, kWebChangesMax);
}

void WebState::Put(std::size_t slot, const SampledNode& next, std::int64_t time_ms) {
  Node& node = nodes_[slot];
  if (!node.gone && node.now == next) return;
  const int before = node.gone ? kGone : static_cast<int>(node.now.state);
  const int after = static_cast<int>(next.state);
  const bool moved = before == after && node.now.node_rank == next.node_rank &&
                     node.now.rank_first == next.rank_first && node.now.ranks == next.ranks &&
                     node.now.section == next.section && node.now.slow_rank == next.slow_rank &&
                     node.now.hung == next.hung;
  node = {.now = next, .gone = false};
  if (before != after) {
    changes_.push_back({time_ms, slot, before, after});
    Append(delta_, "changes", Json::array({time_ms, slot, before, after}), kWebChangesMax);
  }
  const std::string key = std::to_string(slot);
  // Most of a large run changes in each second, and in nothing but these.
  if (moved && !(delta_.contains("nodes") && delta_["nodes"].contains(key))) {
    delta_["moves"][key] = Json::array({next.step, next.rate});
    return;
  }
  delta_["nodes"][key] = NodeJson(slot);
}

WebState::Json WebState::NodeJson(std::size_t slot) const {
  const Node& node = nodes_[slot];
  return Json::array({Utf8Name(node.now.host), node.now.node_rank,
                      node.gone ? kGone : static_cast<int>(node.now.state), node.now.rank_first,
                      node.now.ranks, node.now.step, Known(node.now.rate, node.now.rate > 0),
                      node.now.section, node.now.slow_rank, node.now.hung, Utf8Name(node.now.id)});
}

void WebState::OnEvent(const std::string& line, const Json& event, const std::string& words) {
  const std::size_t hash = std::hash<std::string>()(line);
  if (std::find(seen_.begin(), seen_.end(), hash) != seen_.end()) return;
  seen_.push_back(hash);
  Keep(seen_, kWebEventsMax);
  const auto number = [&event](const char* name) {
    const auto it = event.find(name);
    return it != event.end() && it->is_number_integer() ? *it : Json(-1);
  };
  const auto kind = event.find("event");
  Json one =
      Json::array({TimeOfEvent(event), kind != event.end() && kind->is_string() ? *kind : Json(""),
                   Utf8Name(Printable(words)), number("round"), number("rank")});
  Append(delta_, "events", one, kWebEventsMax);
  events_.push_back(std::move(one));
  Keep(events_, kWebEventsMax);
}

void WebState::OnLine(const std::string& text) {
  std::string line = Utf8Name(CutText(Printable(text), kWebLineBytesMax));
  Append(delta_, "lines", line, kWebLinesMax);
  lines_.push_back(std::move(line));
  Keep(lines_, kWebLinesMax);
}

void WebState::Compare(const WebState& other) {
  others_.push_back({{"name", other.run_["name"]}, {"samples", other.samples_}});
}

std::string WebState::Snapshot(bool control) const {
  Json nodes = Json::object();
  for (std::size_t slot = 0; slot < nodes_.size(); ++slot)
    nodes[std::to_string(slot)] = NodeJson(slot);
  Json changes = Json::array();
  for (const Change& one : changes_)
    changes.push_back(Json::array({one.time_ms, one.slot, one.before, one.after}));
  return JsonText(Json{{"version", 1},
                       {"control", control},
                       {"spacing_ms", spacing_ms_},
                       {"run", run_},
                       {"nodes", std::move(nodes)},
                       {"samples", samples_},
                       {"others", others_},
                       {"changes", std::move(changes)},
                       {"events", events_},
                       {"lines", lines_}});
}

std::string WebState::TakeDelta() {
  if (std::exchange(run_changed_, false)) delta_["run"] = run_;
  if (delta_.empty()) return "";
  return JsonText(std::exchange(delta_, Json::object()));
}

std::string WebPage(const std::string& state, const std::string& nonce) {
  // "</script>" in the text of a run would end the element.
  const std::string safe = absl::StrReplaceAll(state, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kWebPageSource,
                             {{"{{NONCE}}", nonce},
                              {"{{CONNECT}}", state == "null" ? "'self'" : "'none'"},
                              {"{{STATE}}", safe}});
}

}  // namespace ddprun
