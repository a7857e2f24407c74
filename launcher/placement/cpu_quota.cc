// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/cpu_quota.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "launcher/base/cgroup_folder.h"
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

}  // namespace

std::optional<double> ReadCpuQuota(const std::string& root) {
  const std::optional<CgroupFolder> cgroup = ReadCgroup(root, "self", "cpu");
  if (!cgroup.has_value()) return std::nullopt;
  std::optional<double> least;
  for (const std::string& folder : cgroup->AndAbove()) {
    const std::optional<double> quota =
        cgroup->v2 ? QuotaOfVersion2(folder) : QuotaOfVersion1(folder);
    if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

}  // namespace ddprun
