// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"

namespace ddprun {
std::string NumaBindingName(NumaBinding mode) {
  if (mode == NumaBinding::kNone) return "none";
  return ChoicesOf(kNumaBindingNames)[static_cast<std::size_t>(mode) - 1];
}

void ReadGpus(Reader& reader, const Flag&, const Value& value, Options& options) {
  std::vector<std::string>& gpus = options.affinity.gpus;
  for (absl::string_view entry : absl::StrSplit(value.text, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (gpus.size() > static_cast<std::size_t>(kGpusMax)) {
      return reader.FailWith(
          absl::StrCat(value.source, " names more than ", kGpusMax, " GPUs; name each once"));
    }
    if (absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-")) {
      gpus.emplace_back(entry);
    } else if (const auto range = ParseRange(entry);
               range.has_value() && range->back() < kGpusMax) {
      for (const int index : *range) gpus.push_back(absl::StrCat(index));
    } else {
      return reader.Fail(value, absl::StrCat("a list of GPUs: numbers below ", kGpusMax,
                                             ", ranges, GPU-... or MIG-..., as in 0,2-3"));
    }
  }
  std::vector<std::string> sorted = gpus;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    reader.FailWith(absl::StrCat(value.source, " '", value.text, "' names ", *twice,
                                 " twice; name each GPU once"));
  }
}

}  // namespace ddprun
