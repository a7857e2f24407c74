// SPDX-License-Identifier: Apache-2.0
#include "worker/profile/trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

namespace ddprun {
namespace {

std::string Quoted(const std::string& text) {
  // Operators' names are not all UTF-8: a byte that is not becomes a replacement character.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format counts in microseconds; fractions are allowed.
std::string Microseconds(std::int64_t nanoseconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(nanoseconds) / 1000);
  return text;
}

void AddMetadata(std::string& out, const RankTrace& trace, int track, const char* name,
                 const std::string& arguments) {
  if (!out.empty()) out += ",\n";
  out += R"({"ph":"M","pid":)" + std::to_string(trace.rank) + R"(,"tid":)" + std::to_string(track) +
         R"(,"name":")" + name + R"(","args":{)" + arguments + "}}";
}

}  // namespace

void MarkOverlaps(std::vector<TraceSlice>& slices) {
  std::stable_sort(slices.begin(), slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
    // Of two that begin together the longer one is the outer.
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
  std::string out;
  const std::string process = "rank " + std::to_string(trace.rank) + " (" + trace.host + ")";
  AddMetadata(out, trace, 0, "process_name", R"("name":)" + Quoted(process));
  AddMetadata(out, trace, 0, "process_sort_index", R"("sort_index":)" + std::to_string(trace.rank));
  for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
    const TraceTrack& track = trace.tracks[i];
    AddMetadata(out, trace, track.id, "thread_name", R"("name":)" + Quoted(track.name));
    AddMetadata(out, trace, track.id, "thread_sort_index", R"("sort_index":)" + std::to_string(i));
  }
  std::int64_t number = 0;  // of an overlapping slice, unique in its process
  for (const TraceSlice& slice : trace.slices) {
    const std::string place = R"("pid":)" + std::to_string(trace.rank) + R"(,"tid":)" +
                              std::to_string(slice.track) + R"(,"name":)" + Quoted(slice.name);
    if (!slice.overlaps) {
      out += ",\n{\"ph\":\"X\"," + place + R"(,"ts":)" + Microseconds(slice.start) + R"(,"dur":)" +
             Microseconds(slice.duration) + "}";
      continue;
    }
    const std::string id = R"(,"cat":"async","id2":{"local":")" + std::to_string(++number) + "\"}";
    out += ",\n{\"ph\":\"b\"," + place + id + R"(,"ts":)" + Microseconds(slice.start) + "}";
    out += ",\n{\"ph\":\"e\"," + place + id + R"(,"ts":)" +
           Microseconds(slice.start + slice.duration) + "}";
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
