// SPDX-License-Identifier: Apache-2.0
#include "worker/library/progress/flight_record.h"

#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/values/element_type.h"
#include "worker/library/accelerator/accelerator.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::int64_t Elements(const Json& sizes) {
  std::int64_t all = 1;
  for (const Json& size : sizes) all *= size.get<std::int64_t>();
  return all;
}

// "nccl:all_reduce" is an all_reduce.
std::string NameIn(const Json& entry) {
  const auto name = entry.at("profiling_name").get<std::string>();
  return name.substr(name.find(':') + 1);
}

// Throws Json::exception where the entry is not what it should be.
Collective Read(const Json& entry) {
  Collective collective;
  collective.group = entry.at("process_group").at(0).get<std::string>();
  // A message between two ranks is counted by those two alone.
  if (!entry.at("is_p2p").get<bool>())
    collective.number = entry.at("collective_seq_id").get<std::int64_t>();
  collective.name = NameIn(entry);
  const Json& types = entry.at("input_dtypes");
  const Json& sizes = entry.at("input_sizes");
  if (types.empty()) return collective;
  const auto recorded = types.at(0).get<std::string>();
  const ElementType* type = FindElementType(recorded);
  collective.dtype = type != nullptr ? std::string(type->name) : recorded;
  if (type == nullptr) return collective;
  collective.bytes = 0;
  for (const Json& tensor : sizes) collective.bytes += Elements(tensor) * type->bytes;
  return collective;
}

// Gloo's entries have no other state than that they are retired; NCCL's are retired too when their
// time is over.
bool IsDone(const Json& entry) {
  if (entry.at("state").get<std::string>() == "completed") return true;
  const bool is_nccl = entry.at("profiling_name").get<std::string>().rfind("nccl:", 0) == 0;
  return !is_nccl && entry.at("retired").get<bool>();
}

void NoteDone(Collective done, std::vector<Collective>& last) {
  if (done.number == 0) return;
  done.bytes = -1;
  done.dtype.clear();
  for (Collective& known : last) {
    if (known.group != done.group) continue;
    if (known.number < done.number) known = std::move(done);
    return;
  }
  if (last.size() < kCollectivesDoneMax) last.push_back(std::move(done));
}

}  // namespace

CollectivePlace PlaceIn(const std::vector<std::string>& records, RecordTime begin) {
  CollectivePlace place;
  const std::int64_t begin_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(begin.time_since_epoch()).count();
  auto oldest = std::numeric_limits<std::int64_t>::max();
  for (const std::string& text : records) {
    const Json record = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("entries") || !record["entries"].is_array())
      continue;
    for (const Json& entry : record["entries"]) {
      try {
        Collective collective = Read(entry);
        const auto time = entry.at("time_created_ns").get<std::int64_t>();
        if (time < begin_ns) continue;
        if (IsDone(entry)) {
          NoteDone(std::move(collective), place.last);
        } else if (time < oldest) {
          oldest = time;
          place.waits = std::move(collective);
        }
      } catch (const Json::exception&) {
        continue;
      }
    }
  }
  return place;
}

CollectivePlace PlaceNow(bool with_nccl, const CollectivePlace& queued, RecordTime begin) {
  std::vector<std::string> records{
      c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false)};
  if (with_nccl) records.push_back(LoadAccelerator().FlightRecord());
  CollectivePlace place = PlaceIn(records, begin);
  if (queued.waits) place.waits = queued.waits;
  place.last.insert(place.last.begin(), queued.last.begin(), queued.last.end());
  return place;
}

}  // namespace ddprun
