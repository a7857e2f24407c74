// SPDX-License-Identifier: Apache-2.0
// Parses the values of log flags: torchrun's streams by worker, filters and prefix template, and
// ddprun's rotation sizes. Pure: texts in, values out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/output_stream.h"

namespace ddprun {

// --redirects and --tee: 0 none, 1 stdout, 2 stderr, 3 both; for all workers ("3") or by local rank
// ("0:3,11:1"), where those that are not named have none.
class StreamSpec {
 public:
  StreamSpec() = default;
  explicit StreamSpec(int for_all) : for_all_(for_all) {}
  explicit StreamSpec(std::map<int, int> by_local_rank)
      : by_local_rank_(std::move(by_local_rank)) {}

  bool Has(int local_rank, OutputStream stream) const;
  bool IsEmpty() const;

 private:
  int for_all_ = 0;
  std::map<int, int> by_local_rank_;
};

// Absent: invalid.
std::optional<StreamSpec> ParseStreamSpec(std::string_view text);

// "0,2,5". Absent: invalid. An empty text is an empty set.
std::optional<std::set<int>> ParseLocalRanks(std::string_view text);

// "apple,orange"; a comma of a part is written twice. An empty text has no parts.
std::vector<std::string> ParseFilters(std::string_view text);

struct LogRotation {
  std::uint64_t bytes = 0;  // rotate a file before it grows beyond this size; 0: never
  int files = 0;            // files to keep of each log, the current one included; 0: all
  bool operator==(const LogRotation&) const = default;
};

// "100M" or "100M:5", with K, M or G. Absent: invalid or outside the limits.
std::optional<LogRotation> ParseLogRotation(std::string_view text);

// The values of the variables in a prefix.
struct PrefixValues {
  std::string role_name;
  int local_rank = 0;
  int rank = 0;
  std::string hostname;
};

// In place of a template: torchrun's own prefix, [role0]: with the local rank, of the lines of a
// worker with --tee, and none of others.
inline constexpr std::string_view kTorchrunPrefix = "torchrun";

// Python's string.Template, as torchrun has it: ${name} and $name, and $$ for $. INVALID_ARGUMENT:
// the error as the end of a sentence ("has ...").
absl::StatusOr<std::string> FillPrefix(std::string_view format, const PrefixValues& values);

}  // namespace ddprun
