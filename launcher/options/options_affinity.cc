// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

const std::vector<std::pair<std::string, NumaBinding>> kNumaBindings = {
    {"node", NumaBinding::kNode},
    {"socket", NumaBinding::kSocket},
    {"exclusive", NumaBinding::kExclusive},
    {"core-complex", NumaBinding::kCoreComplex}};

void ReadGpus(Reader& reader, AffinityOptions& options) {
  const Value* value = reader.Find("--gpus");
  if (value == nullptr) return;
  for (absl::string_view entry : absl::StrSplit(value->text, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (options.gpus.size() > static_cast<std::size_t>(kGpusMax)) {
      return reader.FailWith(
          absl::StrCat(value->source, " names more than ", kGpusMax, " GPUs; name each once"));
    }
    if (absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-")) {
      options.gpus.emplace_back(entry);
    } else if (const auto range = ParseRange(entry);
               range.has_value() && range->back() < kGpusMax) {
      for (const int index : *range) options.gpus.push_back(absl::StrCat(index));
    } else {
      return reader.Fail(*value, absl::StrCat("a list of GPUs: numbers below ", kGpusMax,
                                              ", ranges, GPU-... or MIG-..., as in 0,2-3"));
    }
  }
  std::vector<std::string> sorted = options.gpus;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    reader.FailWith(absl::StrCat(value->source, " '", value->text, "' names ", *twice,
                                 " twice; name each GPU once"));
  }
}

}  // namespace

std::string NumaBindingName(NumaBinding mode) {
  for (const auto& [name, value] : kNumaBindings) {
    if (value == mode) return name;
  }
  return "none";
}

const std::vector<Flag> kAffinityFlags = {
    {"--numa-binding", 0, "MODE",
     "Bind each worker to CPUs near its GPU: node, socket, exclusive or core-complex."},
    {"--gpus", 0, "LIST", "Use only these of the visible GPUs: 0,2-3, GPU-..., MIG-..."},
    {"--gpus-per-worker", 0, "N", "Give each worker N GPUs of its own (all workers see all GPUs)."},
    {"--virtual-local-rank", 0, nullptr,
     "Set LOCAL_RANK to 0 for all workers; each sees one GPU of its own."},
};

AffinityOptions ReadAffinityOptions(Reader& reader) {
  AffinityOptions options;
  options.numa_binding = reader.Choice("--numa-binding", kNumaBindings, NumaBinding::kNone);
  ReadGpus(reader, options);
  options.gpus_per_worker = reader.Integer("--gpus-per-worker", 1, kGpusMax).value_or(0);
  options.virtual_local_rank = reader.Switch("--virtual-local-rank");
  return options;
}

}  // namespace ddprun
