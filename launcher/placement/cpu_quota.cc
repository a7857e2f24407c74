// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/cpu_quota.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

std::optional<double> Ratio(absl::string_view quota, absl::string_view period) {
  double time = 0;
  double of = 0;
  // "max", and -1 in version 1: no limit.
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of) || time <= 0 || of <= 0) {
    return std::nullopt;
  }
  return time / of;
}

// "400000 100000"
std::optional<double> QuotaOfVersion2(const std::string& folder) {
  const std::string text = ReadSmallFile(folder + "/cpu.max");
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(text), absl::MaxSplits(' ', 1));
  return Ratio(words.first, words.second);
}

std::optional<double> QuotaOfVersion1(const std::string& folder) {
  const std::string quota = ReadSmallFile(folder + "/cpu.cfs_quota_us");
  const std::string period = ReadSmallFile(folder + "/cpu.cfs_period_us");
  return Ratio(absl::StripAsciiWhitespace(quota), absl::StripAsciiWhitespace(period));
}

// Of the cgroup and all above it: any of them may limit.
template <typename QuotaOf>
std::optional<double> Least(const std::string& mount, absl::string_view path, QuotaOf quota_of) {
  std::optional<double> least;
  while (true) {
    if (path == "/") path = "";
    const std::optional<double> quota = quota_of(absl::StrCat(mount, path));
    if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
    if (path.empty()) return least;
    path = path.substr(0, path.rfind('/'));
  }
}

}  // namespace

std::optional<double> ReadCpuQuota(const std::string& root) {
  const std::string own = ReadSmallFile(root + "/proc/self/cgroup");
  // "4:cpu,cpuacct:/docker/1a2b" or "0::/user.slice"
  for (const absl::string_view line : absl::StrSplit(own, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() < 3 || parts[2].empty() || parts[2][0] != '/') continue;
    std::optional<double> quota;
    if (parts[1].empty()) {
      quota = Least(root + "/sys/fs/cgroup", parts[2], QuotaOfVersion2);
    } else {
      const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
      if (std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
      quota = Least(root + "/sys/fs/cgroup/cpu", parts[2], QuotaOfVersion1);
    }
    if (quota.has_value()) return quota;
  }
  return std::nullopt;
}

}  // namespace ddprun
