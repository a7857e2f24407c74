// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/event_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "proto/output_file.h"

namespace ddprun {
namespace {

std::string PathOf(const std::string& folder) { return folder + "/events.jsonl"; }
std::string EarlierPathOf(const std::string& folder) { return folder + "/events-1.jsonl"; }
std::string VerdictPathOf(const std::string& folder) { return folder + "/verdict.json"; }

}  // namespace

void EventRecord::Append(const std::string& lines) {
  if (bytes_ + lines.size() > kRunEventsBytesMax) {
    std::rename(PathOf(folder_).c_str(), EarlierPathOf(folder_).c_str());
    file_.Reset();
  }
  if (!file_.valid()) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    file_ = OwnedFd(open(PathOf(folder_).c_str(), kFlags, 0600));
    bytes_ = 0;
  }
  if (!file_.valid() || WriteAll(file_.get(), lines.data(), lines.size()) != 0) return;
  bytes_ += lines.size();
}

std::vector<std::string> ReadEvents(const std::string& folder) {
  std::vector<std::string> lines;
  for (const std::string& path : {EarlierPathOf(folder), PathOf(folder)}) {
    std::vector<std::string> those = absl::StrSplit(ReadSmallFile(path, kRunEventsBytesMax), '\n');
    those.pop_back();  // after the last line end: a line that was cut
    lines.insert(lines.end(), those.begin(), those.end());
  }
  return lines;
}

absl::Status WriteVerdict(const std::string& folder, const std::string& json) {
  return WriteWholeFile(VerdictPathOf(folder), json + "\n");
}

std::string ReadVerdict(const std::string& folder) {
  return ReadSmallFile(VerdictPathOf(folder), kRunVerdictBytesMax);
}

}  // namespace ddprun
