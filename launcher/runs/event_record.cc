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

std::string PathOf(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".jsonl";
}
std::string EarlierPathOf(const std::string& folder, const std::string& name) {
  return folder + "/" + name + "-1.jsonl";
}
std::string VerdictPathOf(const std::string& folder) { return folder + "/verdict.json"; }

// Whole lines.
std::vector<std::string> ReadLines(const std::string& folder, const std::string& name) {
  std::vector<std::string> lines;
  for (const std::string& path : {EarlierPathOf(folder, name), PathOf(folder, name)}) {
    std::vector<std::string> those = absl::StrSplit(ReadSmallFile(path, kRunEventsBytesMax), '\n');
    those.pop_back();  // after the last line end: a line that was cut
    lines.insert(lines.end(), those.begin(), those.end());
  }
  return lines;
}

}  // namespace

void EventRecord::Append(const std::string& lines) {
  if (bytes_ + lines.size() > kRunEventsBytesMax) {
    std::rename(PathOf(folder_, name_).c_str(), EarlierPathOf(folder_, name_).c_str());
    file_.Reset();
  }
  if (!file_.valid()) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    file_ = OwnedFd(open(PathOf(folder_, name_).c_str(), kFlags, 0600));
    bytes_ = 0;
  }
  if (!file_.valid() || WriteAll(file_.get(), lines.data(), lines.size()) != 0) return;
  bytes_ += lines.size();
}

std::vector<std::string> ReadEvents(const std::string& folder) {
  return ReadLines(folder, "events");
}

std::vector<std::string> ReadSamples(const std::string& folder) {
  return ReadLines(folder, "samples");
}

std::vector<std::string> ReadSteps(const std::string& folder) { return ReadLines(folder, "steps"); }

absl::Status WriteVerdict(const std::string& folder, const std::string& json) {
  return WriteWholeFile(VerdictPathOf(folder), json + "\n");
}

std::string ReadVerdict(const std::string& folder) {
  return ReadSmallFile(VerdictPathOf(folder), kRunVerdictBytesMax);
}

}  // namespace ddprun
