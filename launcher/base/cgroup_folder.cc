// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/cgroup_folder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

constexpr char kMountInfo[] = "/proc/self/mountinfo";

bool Lists(absl::string_view list, absl::string_view word) {
  const std::vector<absl::string_view> words = absl::StrSplit(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<CgroupFolder> FolderOf(absl::string_view mountinfo, absl::string_view name, bool v2,
                                     absl::string_view controller) {
  if (absl::StartsWith(name, "/..")) return std::nullopt;  // above the root of the namespace
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<absl::string_view> left = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    if (v2 ? right[0] != "cgroup2" : right[0] != "cgroup" || !Lists(right[2], controller)) continue;
    absl::string_view below = name;
    if (left[3] != "/" && !absl::ConsumePrefix(&below, left[3])) continue;
    return CgroupFolder{.v2 = v2,
                        .path = absl::StrCat(left[4], below == "/" ? "" : below),
                        .top = std::string(left[4])};
  }
  return std::nullopt;
}

std::optional<CgroupFolder> BelowRoot(const std::string& root, std::optional<CgroupFolder> found) {
  if (found.has_value()) {
    found->path.insert(0, root);
    found->top.insert(0, root);
  }
  return found;
}

}  // namespace

std::vector<std::string> CgroupFolder::AndAbove() const {
  std::vector<std::string> folders = {path};
  while (folders.back().size() > top.size())
    folders.push_back(folders.back().substr(0, folders.back().rfind('/')));
  return folders;
}

std::optional<CgroupFolder> FindCgroup(absl::string_view mountinfo, absl::string_view membership,
                                       absl::string_view controller) {
  std::optional<absl::string_view> of_v2;
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // ID:CONTROLLERS:NAME
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const absl::string_view name = absl::StripSuffix(fields[2], " (deleted)");
    // If version 1 has the controller, version 2 has not.
    if (!controller.empty() && Lists(fields[1], controller))
      return FolderOf(mountinfo, name, /*v2=*/false, controller);
    if (fields[0] == "0" && fields[1].empty()) of_v2 = name;
  }
  if (!of_v2.has_value()) return std::nullopt;
  return FolderOf(mountinfo, *of_v2, /*v2=*/true, controller);
}

std::optional<CgroupFolder> ReadCgroup(const std::string& root, const std::string& pid,
                                       absl::string_view controller) {
  return BelowRoot(
      root, FindCgroup(ReadSmallFile(root + kMountInfo),
                       ReadSmallFile(absl::StrCat(root, "/proc/", pid, "/cgroup")), controller));
}

std::optional<CgroupFolder> ReadCgroupNamed(const std::string& root, absl::string_view name,
                                            bool v2, absl::string_view controller) {
  return BelowRoot(root, FolderOf(ReadSmallFile(root + kMountInfo), name, v2, controller));
}

}  // namespace ddprun
