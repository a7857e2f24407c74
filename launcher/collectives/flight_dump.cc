// SPDX-License-Identifier: Apache-2.0
#include "launcher/collectives/flight_dump.h"

#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/progress_message.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/values/element_type.h"
#include "rendezvous/values/pickle.h"

namespace ddprun {
namespace {

// The last ones of each group that are compared (HISTORY in collective_watch.py).
constexpr std::size_t kDoneOfGroupMax = 6;

struct Entry {
  Collective call;
  std::int64_t created_ns = 0;
  bool is_done = false;
};

absl::Status Unknown(const char* field) {
  return absl::InvalidArgumentError(
      absl::StrCat("the dump has no \"", field, "\" as it should be"));
}

const PickleValue* Find(const PickleDict& dict, std::string_view name) {
  for (const auto& [key, value] : dict.items) {
    const auto* text = key->As<std::string_view>();
    if (text != nullptr && *text == name) return value;
  }
  return nullptr;
}

// Null: it is missing or of another kind.
template <typename T>
const T* Get(const PickleDict& dict, std::string_view name) {
  const PickleValue* value = Find(dict, name);
  return value == nullptr ? nullptr : value->As<T>();
}

// Cut before it is copied or compared: many entries may share one of any length.
std::string Name(std::string_view text) { return std::string(text.substr(0, kNameBytesMax)); }

// Counts the elements of inputs. Two bytes of a pickle may refer to a list of any length, and so
// may each item of that list: each list is counted once, however many entries share it.
class Inputs {
 public:
  // The elements of all inputs together. -1: not known.
  std::int64_t Elements(const PickleList& sizes) {
    const auto [known, is_new] = of_all_.try_emplace(&sizes, -1);
    if (is_new) known->second = Add(sizes);
    return known->second;
  }

 private:
  std::int64_t Add(const PickleList& sizes) {
    std::int64_t all = 0;
    for (const PickleValue* size : sizes.items) {
      const auto* lengths = size->As<PickleList>();
      if (lengths == nullptr) return -1;
      const auto [known, is_new] = of_one_.try_emplace(lengths, -1);
      if (is_new) known->second = Multiply(*lengths);
      if (known->second < 0 || __builtin_add_overflow(all, known->second, &all)) return -1;
    }
    return all;
  }

  static std::int64_t Multiply(const PickleList& lengths) {
    std::int64_t elements = 1;
    for (const PickleValue* length : lengths.items) {
      const auto* number = length->As<std::int64_t>();
      if (number == nullptr || *number < 0 || __builtin_mul_overflow(elements, *number, &elements))
        return -1;
    }
    return elements;
  }

  std::unordered_map<const PickleList*, std::int64_t> of_all_;  // by the list of all sizes
  std::unordered_map<const PickleList*, std::int64_t> of_one_;  // by the list of an input's lengths
};

void ReadInput(const PickleDict& entry, Inputs& inputs, Collective& call) {
  const auto* types = Get<PickleList>(entry, "input_dtypes");
  if (types == nullptr || types->items.empty()) return;
  const auto* name = types->items.front()->As<std::string_view>();
  if (name == nullptr) return;
  const ElementType* known = FindElementType(*name);
  call.dtype = known == nullptr ? Name(*name) : known->name;
  const auto* sizes = Get<PickleList>(entry, "input_sizes");
  if (known == nullptr || sizes == nullptr) return;
  const std::int64_t elements = inputs.Elements(*sizes);
  if (elements < 0 || __builtin_mul_overflow(elements, known->bytes, &call.bytes)) call.bytes = -1;
}

absl::StatusOr<Entry> ReadEntry(const PickleDict& fields, Inputs& inputs) {
  const auto* group = Get<PickleTuple>(fields, "process_group");
  const auto* number = Get<std::int64_t>(fields, "collective_seq_id");
  const auto* name = Get<std::string_view>(fields, "profiling_name");
  const auto* created = Get<std::int64_t>(fields, "time_created_ns");
  const auto* state = Get<std::string_view>(fields, "state");
  const auto* retired = Get<bool>(fields, "retired");
  const auto* between_two = Get<bool>(fields, "is_p2p");
  if (group == nullptr || group->items.empty()) return Unknown("process_group");
  const auto* group_name = group->items.front()->As<std::string_view>();
  if (group_name == nullptr) return Unknown("process_group");
  if (number == nullptr || *number < 0) return Unknown("collective_seq_id");
  if (name == nullptr) return Unknown("profiling_name");
  if (created == nullptr) return Unknown("time_created_ns");
  if (state == nullptr) return Unknown("state");
  if (retired == nullptr) return Unknown("retired");
  if (between_two == nullptr) return Unknown("is_p2p");
  Entry entry;
  entry.created_ns = *created;
  // Others than NCCL's say only that they are retired. NCCL's are retired too when they timed out.
  entry.is_done = *state == "completed" || (*retired && !name->starts_with("nccl:"));
  entry.call.group = Name(*group_name);
  entry.call.number = *between_two ? 0 : *number;
  entry.call.name = Name(*name);
  entry.call.name.erase(0, entry.call.name.find(':') + 1);  // nothing without a colon
  ReadInput(fields, inputs, entry.call);
  return entry;
}

absl::StatusOr<CollectivePlace> ReadPlace(const PickleValue& root, std::int64_t since_ns) {
  const auto* dump = root.As<PickleDict>();
  if (dump == nullptr) return absl::InvalidArgumentError("the dump is no dict");
  std::map<std::string, std::vector<Collective>> done;  // by group
  if (const auto* groups = Get<PickleDict>(*dump, "pg_config")) {
    for (const auto& [key, value] : groups->items) {
      const auto* name = key->As<std::string_view>();
      if (name != nullptr && !name->empty()) done[Name(*name)];
    }
  }
  CollectivePlace place;
  std::int64_t waits_since_ns = 0;
  const PickleValue* entries = Find(*dump, "entries");
  if (entries == nullptr || entries->As<PickleList>() == nullptr) return Unknown("entries");
  Inputs inputs;
  std::unordered_set<const PickleValue*> seen;
  for (const PickleValue* value : entries->As<PickleList>()->items) {
    if (!seen.insert(value).second) continue;  // the same entry, which costs the pickle two bytes
    const auto* fields = value->As<PickleDict>();
    if (fields == nullptr) return Unknown("entries");
    absl::StatusOr<Entry> entry = ReadEntry(*fields, inputs);
    if (!entry.ok()) return entry.status();
    if (entry->created_ns < since_ns) continue;
    if (!entry->is_done) {
      if (place.waits.has_value() && entry->created_ns >= waits_since_ns) continue;
      waits_since_ns = entry->created_ns;
      place.waits = std::move(entry->call);
    } else if (entry->call.number > 0) {
      std::vector<Collective>& of_group = done[entry->call.group];
      of_group.push_back(std::move(entry->call));
      if (of_group.size() > kDoneOfGroupMax) of_group.erase(of_group.begin());
    }
  }
  for (auto& [group, calls] : done) {
    if (calls.empty()) calls.push_back({.group = group});
    place.last.insert(place.last.end(), calls.begin(), calls.end());
  }
  return place;
}

}  // namespace

absl::StatusOr<CollectivePlace> ParseFlightDump(std::string_view bytes, std::int64_t since_ns) {
  try {
    const Pickle pickle = ParsePickle(bytes);
    absl::StatusOr<CollectivePlace> place = ReadPlace(pickle.root(), since_ns);
    if (!place.ok()) return place.status();
    // Numbers, lengths and names as a worker's own report would have them.
    ProgressMessage message;
    message.place = *std::move(place);
    return ParseProgress(PrintableLines(ToText(message))).place.value_or(CollectivePlace{});
  } catch (const PickleError& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace ddprun
