// SPDX-License-Identifier: Apache-2.0
#include "launcher/simulate/forecast.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "launcher/top/top_view.h"
#include "proto/json_text.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr std::size_t kBarWidth = 40;
constexpr double kPercent = 100;
// Less is not worth a sentence, nor a setting.
constexpr double kGainMin = 0.005;
constexpr double kShareMin = 0.00005;

template <typename T>
struct Spread {
  T least, median, most;
};

template <typename Of>
auto SpreadOf(const std::vector<FleetRun>& runs, Of of) {
  std::vector<decltype(of(runs.front()))> all;
  for (const FleetRun& run : runs) all.push_back(of(run));
  std::sort(all.begin(), all.end());
  return Spread<typename decltype(all)::value_type>{all.front(), all[all.size() / 2], all.back()};
}

struct Change {
  std::string flag;
  FleetPlan plan;
  FleetTime against;  // runs that spend no time on it gain nothing
};

// Those that could bring something. The interval between checkpoints needs no run of its own.
std::vector<Change> ChangesOf(const SimulateRequest& request, const std::vector<FleetRun>& runs) {
  const FleetPlan& plan = request.plan;
  const auto any = [&](FleetTime kind) {
    return std::any_of(runs.begin(), runs.end(),
                       [kind](const FleetRun& run) { return run[kind] > 0; });
  };
  std::vector<Change> changes;
  const auto add = [&](std::string flag, FleetTime against, auto change) {
    changes.push_back({std::move(flag), plan, against});
    change(changes.back().plan);
  };
  if (any(FleetTime::kNoMachine)) {
    for (const int more : {1, 2}) {
      add(absl::StrCat("--spares ", plan.spares + more), FleetTime::kNoMachine,
          [=](FleetPlan& changed) { changed.spares += more; });
    }
    const int fewer = plan.nodes - std::max(1, plan.nodes / 100);
    if (fewer >= 1 && (plan.nodes_min == 0 || plan.nodes_min > fewer)) {
      add(absl::StrCat("--min-nodes ", fewer), FleetTime::kNoMachine,
          [=](FleetPlan& changed) { changed.nodes_min = fewer; });
    }
  }
  if (!plan.in_place && any(FleetTime::kRestart)) {
    add("--in-place", FleetTime::kRestart, [](FleetPlan& changed) { changed.in_place = true; });
  }
  if (any(FleetTime::kDetection) && plan.lease >= 2 * kLeaseMin) {
    add(absl::StrCat("--lease ", TimeText(plan.lease / 2)), FleetTime::kDetection,
        [](FleetPlan& changed) { changed.lease /= 2; });
  }
  return changes;
}

std::string Percent(double share) { return absl::StrFormat("%6.2f %%", kPercent * share); }

std::string Failures(const SimulateRequest& request) {
  const FleetPlan& plan = request.plan;
  std::string text;
  if (request.mtbf.count() > 0) {
    text = absl::StrCat(", one fails every ", TimeText(request.mtbf));
  } else if (plan.node_mtbf.count() > 0) {
    text = absl::StrCat(", each fails every ", TimeText(plan.node_mtbf));
  }
  if (plan.process_mtbf.count() > 0)
    absl::StrAppend(&text, ", a process dies every ", TimeText(plan.process_mtbf));
  if (!plan.failures.empty())
    absl::StrAppend(&text, ", failures at given times: ", plan.failures.size());
  return text;
}

// What ended runs, and the flags with which none of these would have.
std::string Needs(const Forecast& forecast) {
  const FleetPlan& plan = forecast.request.plan;
  const auto& runs = forecast.runs;
  const auto ended = std::find_if(runs.begin(), runs.end(),
                                  [](const FleetRun& run) { return !run.why_ended.empty(); });
  if (ended != runs.end()) {
    const auto count = std::count_if(runs.begin(), runs.end(),
                                     [](const FleetRun& run) { return !run.why_ended.empty(); });
    return absl::StrFormat(
        "%d of %d runs ended too early, one after %s: %s\n", count, runs.size(),
        TimeText(milliseconds(static_cast<std::int64_t>(ended->ended_after) * 1000)),
        ended->why_ended);
  }
  std::string flags;
  const int restarts = SpreadOf(runs, [](const FleetRun& run) { return run.restarts; }).most;
  if (plan.restarts_max < 0 && restarts > 0) absl::StrAppend(&flags, " --max-restarts ", restarts);
  const double wait = SpreadOf(runs, [](const FleetRun& run) { return run.longest_wait; }).most;
  if (plan.join_timeout.count() == 0 && wait > kJoinTimeoutDefault.count())
    absl::StrAppend(&flags, " --join-timeout ", static_cast<std::int64_t>(wait) + 1, "s");
  return flags.empty() ? "" : absl::StrCat("the run needs ddprun", flags, "\n");
}

}  // namespace

std::string TimeText(milliseconds time) {
  constexpr milliseconds kDay = std::chrono::hours(24);
  if (time >= 2 * kDay && time % kDay == milliseconds(0)) return absl::StrCat(time / kDay, "d");
  std::string text = absl::FormatDuration(absl::FromChrono(time));
  // 1h30m0s
  if (absl::string_view short_one = text; time >= std::chrono::minutes(1)) {
    if (absl::ConsumeSuffix(&short_one, "m0s")) text = absl::StrCat(short_one, "m");
    short_one = text;
    if (absl::ConsumeSuffix(&short_one, "h0m")) text = absl::StrCat(short_one, "h");
  }
  return text;
}

Forecast MakeForecast(const SimulateRequest& request) {
  Forecast forecast{request, {}, {}};
  std::vector<FleetRun>& runs = forecast.runs;
  for (int i = 0; i < request.seeds; ++i)
    runs.push_back(SimulateFleet(request.plan, static_cast<std::uint64_t>(request.seed + i)));
  const auto add = [&](std::string flag, auto goodput) {
    double sum = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) sum += goodput(i) - runs[i].Goodput();
    forecast.changes.push_back(
        {std::move(flag), kPercent * sum / static_cast<double>(runs.size())});
  };
  for (const Change& change : ChangesOf(request, runs)) {
    add(change.flag, [&](std::size_t i) {
      if (runs[i][change.against] <= 0) return runs[i].Goodput();
      return SimulateFleet(change.plan, static_cast<std::uint64_t>(request.seed) + i).Goodput();
    });
  }
  const milliseconds best = BestCheckpointInterval(request.plan);
  if (best != request.plan.checkpoint_every) {
    add(absl::StrCat("--checkpoint ", TimeText(best)),
        [&](std::size_t i) { return runs[i].goodput_at_best_interval; });
  }
  std::stable_sort(forecast.changes.begin(), forecast.changes.end(),
                   [](const auto& a, const auto& b) { return a.gain > b.gain; });
  return forecast;
}

std::string ForecastText(const Forecast& forecast, bool utf8) {
  const SimulateRequest& request = forecast.request;
  const FleetPlan& plan = request.plan;
  std::string text = absl::StrCat(plan.nodes, plan.nodes == 1 ? " machine, " : " machines, ",
                                  plan.spares, plan.spares == 1 ? " spare, " : " spares, ",
                                  TimeText(plan.duration), Failures(request),
                                  ", a checkpoint every ", TimeText(plan.checkpoint_every), "\n\n");
  absl::StrAppendFormat(&text, "%-12s %8s  %-17s  of %d runs; bars: of the lost time\n", "",
                        "median", "least to most", request.seeds);
  const auto share_of = [&](FleetTime kind) {
    return SpreadOf(forecast.runs, [kind](const FleetRun& run) { return run.Share(kind); });
  };
  const double lost = std::max(kShareMin, 1 - share_of(FleetTime::kTraining).median);
  for (std::size_t i = 0; i < kFleetTimes; ++i) {
    const auto kind = static_cast<FleetTime>(i);
    const auto share = share_of(kind);
    if (share.most < kShareMin) continue;
    const bool is_goodput = kind == FleetTime::kTraining;
    const std::string name =
        is_goodput ? "goodput" : absl::StrReplaceAll(NameOf(kind), {{"_", " "}});
    absl::StrAppend(&text, absl::StrFormat("%-12s ", name), Percent(share.median), " ",
                    Percent(share.least), Percent(share.most));
    if (!is_goodput) absl::StrAppend(&text, "  ", Bar(share.median / lost, kBarWidth, utf8));
    absl::StrAppend(&text, "\n");
  }
  const auto restarts = SpreadOf(forecast.runs, [](const FleetRun& run) { return run.restarts; });
  absl::StrAppend(&text, "restarts: ", restarts.median, " (", restarts.least, " to ", restarts.most,
                  ")\n", Needs(forecast), "\n");
  if (forecast.changes.empty()) return text;
  absl::StrAppend(&text, "one setting changed, and what it brings in points of goodput:\n");
  const double most = std::max(kGainMin, forecast.changes.front().gain);
  for (const FleetChange& change : forecast.changes) {
    absl::StrAppend(&text, absl::StrFormat("%-21s %+7.2f  ", change.flag, change.gain),
                    Bar(change.gain / most, kBarWidth, utf8), "\n");
  }
  const FleetChange& first = forecast.changes.front();
  if (first.gain < kGainMin) return absl::StrCat(text, "none of them is worth it\n");
  return absl::StrCat(text,
                      absl::StrFormat("worth most: %s, %+.2f points\n", first.flag, first.gain));
}

std::string ForecastJson(const Forecast& forecast) {
  const FleetPlan& plan = forecast.request.plan;
  const auto seconds = [](milliseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  Json runs = Json::array();
  for (std::size_t i = 0; i < forecast.runs.size(); ++i) {
    const FleetRun& run = forecast.runs[i];
    Json shares;
    for (std::size_t k = 0; k < kFleetTimes; ++k) {
      const auto kind = static_cast<FleetTime>(k);
      shares[NameOf(kind)] = run.Share(kind);
    }
    Json one{{"seed", forecast.request.seed + static_cast<int>(i)},
             {"goodput", run.Goodput()},
             {"shares", std::move(shares)},
             {"failures", run.failures},
             {"restarts", run.restarts},
             {"longest_wait_seconds", run.longest_wait},
             {"ended", nullptr}};
    if (!run.why_ended.empty())
      one["ended"] = {{"after_seconds", run.ended_after}, {"why", run.why_ended}};
    runs.push_back(std::move(one));
  }
  Json changes = Json::array();
  for (const FleetChange& change : forecast.changes)
    changes.push_back({{"flag", change.flag}, {"gain_points", change.gain}});
  const auto goodput = SpreadOf(forecast.runs, [](const FleetRun& run) { return run.Goodput(); });
  return JsonText(
             Json{{"version", 1},
                  {"nodes", plan.nodes},
                  {"spares", plan.spares},
                  {"duration_seconds", seconds(plan.duration)},
                  {"checkpoint_seconds", seconds(plan.checkpoint_every)},
                  {"goodput",
                   {{"median", goodput.median}, {"least", goodput.least}, {"most", goodput.most}}},
                  {"runs", std::move(runs)},
                  {"changes", std::move(changes)}}) +
         "\n";
}

}  // namespace ddprun
