// SPDX-License-Identifier: Apache-2.0
#include "launcher/chaos/chaos_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/json_text.h"

namespace ddprun {
namespace {

// Figures for the faults of one kind.
struct KindFigures {
  int done = 0;
  int not_done = 0;
  int without_step = 0;            // that were not followed by a new step
  std::vector<double> lost;        // sorted
  std::map<std::string, int> why;  // faults that were not carried out, by reason
};

// The smallest value that at least `share` of all do not exceed.
double Quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

KindFigures FiguresOf(FaultKind kind, const ChaosResult& result) {
  KindFigures figures;
  for (const InjectedFault& fault : result.faults) {
    if (fault.planned.kind != kind) continue;
    if (!fault.done) {
      ++figures.not_done;
      ++figures.why[fault.words];
      continue;
    }
    ++figures.done;
    if (fault.lost) {
      figures.lost.push_back(*fault.lost);
    } else {
      ++figures.without_step;
    }
  }
  std::sort(figures.lost.begin(), figures.lost.end());
  return figures;
}

// The time between the two; it does not shrink for a restarted service, which learns it again.
RankTime Between(const ChaosResult& result) {
  RankTime time = result.after;
  for (std::size_t i = 0; i < time.times.size(); ++i) {
    time.times[i] = std::max(RankTime::Time(0), time.times[i] - result.before.times[i]);
  }
  return time;
}

}  // namespace

std::optional<ChaosStep> FurthestStep(const RunStatus& status) {
  std::optional<ChaosStep> furthest;
  for (const NodeStatus& node : status.nodes) {
    if (!node.progress || node.progress->step < 0) continue;
    const ChaosStep step{node.progress->epoch, node.progress->step};
    if (!furthest || *furthest < step) furthest = step;
  }
  return furthest;
}

bool HasMadeNewStep(const ChaosStep& before, const ChaosStep& now) {
  return now.epoch > before.epoch || (now.epoch == before.epoch && now.step >= before.step + 2);
}

std::string FaultLine(const InjectedFault& fault) {
  std::string text = absl::StrFormat("%8.1f s  %-8s %s: ", fault.at,
                                     InfoOf(fault.planned.kind).name, TargetName(fault.planned));
  if (!fault.done) return absl::StrCat(text, "not carried out: ", fault.words);
  if (!fault.lost) return absl::StrCat(text, "no new step was seen");
  return absl::StrCat(text, absl::StrFormat("training again after %.2f s", *fault.lost));
}

std::string ChaosText(const ChaosResult& result) {
  std::string text = absl::StrFormat("chaos in run '%s': %d faults in %.1f s; %s\n", result.run_id,
                                     result.faults.size(), result.seconds, result.end);
  absl::StrAppendFormat(&text, "  %-9s %7s %9s %9s %9s %9s\n", "fault", "number", "median s",
                        "p99 s", "most s", "not done");
  for (const FaultInfo& info : FaultTable()) {
    const KindFigures figures = FiguresOf(info.kind, result);
    if (figures.done + figures.not_done == 0) continue;
    const auto seconds = [&](double share) {
      return figures.lost.empty() ? "-" : absl::StrFormat("%.2f", Quantile(figures.lost, share));
    };
    absl::StrAppendFormat(&text, "  %-9s %7d %9s %9s %9s %9d\n", info.name, figures.done,
                          seconds(0.5), seconds(0.99), seconds(1), figures.not_done);
    for (const auto& [why, count] : figures.why) {
      absl::StrAppend(&text, "            ", count, " not carried out: ", why, "\n");
    }
    if (figures.without_step > 0) {
      absl::StrAppend(&text, "            ", figures.without_step,
                      " were not followed by a new step before chaos ended\n");
    }
  }
  const std::string goodput = GoodputText(Between(result));
  if (!goodput.empty()) absl::StrAppend(&text, "goodput: ", goodput, "\n");
  return absl::StrCat(text, "seed: ", result.seed, "\n");
}

std::string ChaosJson(const ChaosResult& result) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["run"] = result.run_id;
  json["seed"] = result.seed;
  json["seconds"] = result.seconds;
  json["end"] = result.end;
  json["kinds"] = Json::object();
  for (const FaultInfo& info : FaultTable()) {
    const KindFigures figures = FiguresOf(info.kind, result);
    if (figures.done + figures.not_done == 0) continue;
    Json& one = json["kinds"][info.name];
    one["done"] = figures.done;
    one["not_done"] = figures.not_done;
    one["without_new_step"] = figures.without_step;
    if (figures.lost.empty()) continue;
    one["lost_seconds"] = {{"median", Quantile(figures.lost, 0.5)},
                           {"p99", Quantile(figures.lost, 0.99)},
                           {"most", figures.lost.back()}};
  }
  json["rank_seconds"] = Json::object();
  ForEachClass(Between(result), [&](TimeClass kind, double seconds) {
    json["rank_seconds"][NameOf(kind)] = seconds;
  });
  json["faults"] = Json::array();
  for (const InjectedFault& fault : result.faults) {
    Json one;
    one["at"] = fault.at;
    one["kind"] = InfoOf(fault.planned.kind).name;
    if (fault.planned.rank >= 0) one["rank"] = fault.planned.rank;
    if (!fault.planned.node_id.empty()) one["node"] = fault.planned.node_id;
    one["done"] = fault.done;
    one["words"] = fault.words;
    if (fault.lost) one["lost_seconds"] = *fault.lost;
    json["faults"].push_back(std::move(one));
  }
  return JsonText(json) + "\n";
}

}  // namespace ddprun
