// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/notice_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// The time that the file gives; absent: it has no number.
std::optional<std::chrono::milliseconds> TimeIn(const std::string& text) {
  double seconds = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text), &seconds) || !(seconds >= 0)) {
    return std::nullopt;
  }
  const double max = std::chrono::duration<double>(kNoticeMax).count();
  return std::chrono::round<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::min(seconds, max)));
}

}  // namespace

// One that cannot be read is there all the same.
NoticeFileLook LookAtNoticeFile(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0)
    return {.exists = true, .text = ReadSmallFile(path, kNoticeFileBytesMax), .error = ""};
  if (errno == ENOENT || errno == ENOTDIR) return {};
  return {.exists = false, .text = "", .error = ErrnoText(errno)};
}

std::optional<NoticeGiven> NoticeFileRules::OnLook(const NoticeFileLook& look) {
  if (!look.error.empty()) return std::nullopt;
  if (!look.exists) given_ = was_empty_ = false;
  if (!look.exists || given_) return std::nullopt;
  if (look.text.empty() && !std::exchange(was_empty_, true)) return std::nullopt;
  given_ = true;
  return NoticeGiven{TimeIn(look.text).value_or(grace_), absl::StrCat("the file ", path_)};
}

std::optional<std::string> NoticeFileRules::TakeProblem(const std::string& error) {
  if (std::exchange(problem_, error) == error || error.empty()) return std::nullopt;
  return absl::StrCat("cannot look for ", path_, " (--notice-on-file): ", error,
                      "; a notice there is not seen until that ends");
}

std::optional<TimePoint> NoticeFile::NextDeadline() const {
  // The result of a look that is late wakes the loop by itself.
  if (path_.empty() || (look_.valid() && due_ == TimePoint::max())) return std::nullopt;
  return due_;
}

std::optional<NoticeGiven> NoticeFile::OnTurn(TimePoint now, std::optional<std::string>& problem) {
  if (path_.empty()) return std::nullopt;
  std::optional<NoticeGiven> given;
  if (const auto look = TakeResult(look_)) {
    problem = rules_.TakeProblem(look->error);
    given = rules_.OnLook(*look);
    due_ = now + kNoticeFileInterval;
  }
  if (due_ > now) return given;
  if (look_.valid()) {
    due_ = TimePoint::max();
    problem = rules_.TakeProblem("its disk does not answer");
    return given;
  }
  look_ = background_.Start<NoticeFileLook>([path = path_] { return LookAtNoticeFile(path); });
  due_ = now + kNoticeFileTimeout;
  return given;
}

}  // namespace ddprun
