// SPDX-License-Identifier: Apache-2.0
#include "worker/train/profile/trace.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <tuple>

#include "proto/json_text.h"

namespace ddprun {
namespace {

// Appends one to a list without brackets. Operators' names are not all UTF-8.
void Append(std::string& list, const nlohmann::json& event) {
  if (!list.empty()) list += ",\n";
  list += JsonText(event);
}

// The format counts in microseconds; fractions are allowed.
double Microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }

}  // namespace

void MarkOverlaps(std::vector<TraceSlice>& slices) {
  std::stable_sort(slices.begin(), slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
    // If two begin together, the longer one encloses the other.
    return std::tuple(a.track, a.start, -a.duration) < std::tuple(b.track, b.start, -b.duration);
  });
  std::vector<std::int64_t> open;  // ends of the slices around, the innermost last
  int track = 0;
  for (TraceSlice& slice : slices) {
    if (slice.track != track) open.clear();
    track = slice.track;
    if (slice.overlaps) continue;
    while (!open.empty() && open.back() <= slice.start) open.pop_back();
    const std::int64_t end = slice.start + slice.duration;
    slice.overlaps = !open.empty() && end > open.back();
    if (!slice.overlaps) open.push_back(end);
  }
}

std::string TraceEvents(const RankTrace& trace) {
  using Json = nlohmann::json;
  std::string out;
  const auto describe = [&](int track, const char* name, const Json& arguments) {
    Append(out,
           {{"ph", "M"}, {"pid", trace.rank}, {"tid", track}, {"name", name}, {"args", arguments}});
  };
  const std::string process = "rank " + std::to_string(trace.rank) + " (" + trace.host + ")";
  describe(0, "process_name", {{"name", process}});
  describe(0, "process_sort_index", {{"sort_index", trace.rank}});
  for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
    describe(trace.tracks[i].id, "thread_name", {{"name", trace.tracks[i].name}});
    describe(trace.tracks[i].id, "thread_sort_index", {{"sort_index", i}});
  }
  std::int64_t number = 0;  // of an overlapping slice, unique in its process
  for (const TraceSlice& slice : trace.slices) {
    Json event{{"ph", "X"},
               {"pid", trace.rank},
               {"tid", slice.track},
               {"name", slice.name},
               {"ts", Microseconds(slice.start)}};
    if (!slice.overlaps) {
      event["dur"] = Microseconds(slice.duration);
      Append(out, event);
      continue;
    }
    event["cat"] = "async";
    event["id2"] = {{"local", std::to_string(++number)}};
    event["ph"] = "b";
    Append(out, event);
    event["ph"] = "e";
    event["ts"] = Microseconds(slice.start + slice.duration);
    Append(out, event);
  }
  return out;
}

std::string TraceFile(const std::vector<std::string>& pieces) {
  std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  for (const std::string& piece : pieces) {
    if (piece.empty()) continue;
    file += separator + piece;
    separator = ",\n";
  }
  return file + "\n]}\n";
}

}  // namespace ddprun
