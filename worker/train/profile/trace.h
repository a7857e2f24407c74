// SPDX-License-Identifier: Apache-2.0
// A trace in the format of Chrome ("Trace Event Format"), which Perfetto and chrome://tracing open:
// each rank is a process of it, named "rank 0 (host)".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

struct TraceSlice {
  std::string name;
  std::int64_t start = 0;  // nanoseconds from the trace's beginning
  std::int64_t duration = 0;
  int track = 0;
  // May overlap others of its track: work that is begun by one thread and ended by another.
  bool overlaps = false;
};

// A line below the rank's name. The slices of one lie beside or within each other.
struct TraceTrack {
  int id = 0;
  std::string name;
};

struct RankTrace {
  int rank = 0;
  std::string host;
  std::vector<TraceTrack> tracks;  // in the order in which they are shown
  std::vector<TraceSlice> slices;
};

// Marks those that would begin within another of their track and end after it, which the format
// cannot show as slices of one line. Sorts by track and start.
void MarkOverlaps(std::vector<TraceSlice>& slices);

// The rank's events, separated by commas: a piece of the trace's list.
std::string TraceEvents(const RankTrace& trace);

// The whole file from all ranks' pieces.
std::string TraceFile(const std::vector<std::string>& pieces);

}  // namespace ddprun
