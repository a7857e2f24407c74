// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/tuning.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace ddprun {
namespace {

using Results = std::vector<TuneResult>;

bool Fits(const TuneResult& result) { return result.images_per_second > 0; }

double SecondsOf(const Results& results) {
  double seconds = 0;
  for (const TuneResult& result : results) seconds += result.seconds;
  return seconds;
}

bool Has(const Results& results, const TuneTrial& trial) {
  return std::any_of(results.begin(), results.end(),
                     [&](const TuneResult& result) { return result.trial == trial; });
}

std::optional<TuneTrial> LargerBatch(const TuneGiven& given, const Results& results) {
  const TuneResult& last = results.back();
  TuneTrial next = last.trial;
  next.batch_size *= 2;
  TuneTrial as_first = last.trial;
  as_first.batch_size = given.first.batch_size;
  if (as_first != given.first || !Fits(last) || !last.twice_fits) return std::nullopt;
  if (next.batch_size > given.batch_max) return std::nullopt;
  if (SecondsOf(results) + 2 * last.seconds > given.seconds / 2) return std::nullopt;
  return next;
}

// With the first number of threads: the others are tried with what is best so far.
TuneResult BestShape(const TuneGiven& given, const Results& results) {
  Results shapes;
  for (const TuneResult& result : results) {
    if (result.trial.loader_threads == given.first.loader_threads) shapes.push_back(result);
  }
  return Recommended(shapes);
}

}  // namespace

std::optional<TuneTrial> NextTrial(const TuneGiven& given, const Results& results) {
  if (results.empty()) return given.first;
  if (const auto larger = LargerBatch(given, results)) return larger;
  if (LargestBatch(results) == 0) return std::nullopt;
  const TuneResult best = BestShape(given, results);
  if (SecondsOf(results) + best.seconds > given.seconds) return std::nullopt;
  TuneTrial next = best.trial;
  const bool both_layouts = std::any_of(results.begin(), results.end(), [&](const TuneResult& one) {
    return one.trial.channels_last != given.first.channels_last;
  });
  next.channels_last = !given.first.channels_last;
  if (given.has_layouts && !both_layouts) return next;
  next = best.trial;
  for (next.loader_threads = 1; next.loader_threads <= given.threads_max;
       next.loader_threads *= 2) {
    if (!Has(results, next)) return next;
  }
  return std::nullopt;
}

TuneResult Recommended(const Results& results) {
  double best = 0;
  for (const TuneResult& result : results) best = std::max(best, result.images_per_second);
  const TuneResult* chosen = nullptr;
  const auto costs = [](const TuneResult& result) {
    return std::tuple(result.trial.batch_size, result.trial.loader_threads);
  };
  for (const TuneResult& result : results) {
    if (!Fits(result) || result.images_per_second < kAsFast * best) continue;
    if (chosen == nullptr || costs(result) < costs(*chosen)) chosen = &result;
  }
  return *chosen;
}

std::int64_t LargestBatch(const Results& results) {
  std::int64_t largest = 0;
  for (const TuneResult& result : results) {
    if (Fits(result)) largest = std::max(largest, result.trial.batch_size);
  }
  return largest;
}

std::string ToRow(const TuneResult& result) {
  const TuneTrial& trial = result.trial;
  char row[100];
  std::snprintf(row, sizeof row, "%10lld  %13s  %14lld  ", static_cast<long long>(trial.batch_size),
                trial.channels_last ? "yes" : "no", static_cast<long long>(trial.loader_threads));
  char speed[30];
  std::snprintf(speed, sizeof speed, "%15.0f\n", result.images_per_second);
  return std::string(row) + (Fits(result) ? speed : "   does not fit\n");
}

std::string ToFlags(const TuneTrial& trial) {
  return "--batch-size " + std::to_string(trial.batch_size) +
         (trial.channels_last ? " --channels-last" : " --no-channels-last") + " --loader-threads " +
         std::to_string(trial.loader_threads);
}

}  // namespace ddprun
