// SPDX-License-Identifier: Apache-2.0
// Which settings `train tune` tries, one after the other, and which of them it recommends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct TuneTrial {
  std::int64_t batch_size = 1;
  bool channels_last = false;
  std::int64_t loader_threads = 1;
  bool operator==(const TuneTrial&) const = default;
};

struct TuneResult {
  TuneTrial trial;
  double images_per_second = 0;  // 0: it does not fit into the memory
  double seconds = 0;            // that the trial took
  bool twice_fits = true;        // as far as is known
};

struct TuneGiven {
  TuneTrial first;
  std::int64_t batch_max = 1;
  bool has_layouts = true;       // the model has images
  std::int64_t threads_max = 0;  // 0: no loader's threads prepare batches
  double seconds = 60;           // for all trials
};

// Settings whose speed is at least this share of the best count as equally fast: of those the
// smallest batch, which is the one that learns most from an image, with the fewest threads.
inline constexpr double kAsFast = 0.95;

// First batch sizes by powers of two, for at most half the time, then the other memory format, then
// numbers of threads. Nullopt: nothing is left to try, or no time for it.
std::optional<TuneTrial> NextTrial(const TuneGiven& given, const std::vector<TuneResult>& results);

// The recommended one of the results that fit; at least one must fit.
TuneResult Recommended(const std::vector<TuneResult>& results);

// The largest batch that fits; 0: none does.
std::int64_t LargestBatch(const std::vector<TuneResult>& results);

// Lines of a table.
inline constexpr char kTuneTableHead[] =
    "batch size  channels-last  loader threads  images a second\n";
std::string ToRow(const TuneResult& result);

// The flags for it, as they are typed.
std::string ToFlags(const TuneTrial& trial);

}  // namespace ddprun
