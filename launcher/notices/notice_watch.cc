// SPDX-License-Identifier: Apache-2.0
#include "launcher/notices/notice_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// The time that the file gives; absent: it has no number.
std::optional<milliseconds> TimeIn(const std::string& text) {
  double seconds = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text), &seconds) || !(seconds >= 0)) {
    return std::nullopt;
  }
  const double max = std::chrono::duration<double>(kNoticeMax).count();
  return std::chrono::round<milliseconds>(std::chrono::duration<double>(std::min(seconds, max)));
}

}  // namespace

// One that cannot be read is there all the same. An empty one is unsure, since who writes the time
// into it creates it first.
NoticeLook LookAtNoticeFile(const std::string& path) {
  NoticeLook look;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) look.error = ErrnoText(errno);
    return look;
  }
  const std::string text = ReadSmallFile(path, kNoticeFileBytesMax);
  look.id = path;
  look.remaining = TimeIn(text);
  look.reason = absl::StrCat("the file ", path);
  look.unsure = text.empty();
  return look;
}

NoticeLook AskMetadata(MetadataService& service) {
  NoticeLook look;
  for (int i = 0; i < kMetadataRequestsMax; ++i) {
    const absl::StatusOr<HttpAnswer> answer = SendHttp(service.server, service.Next());
    if (!answer.ok()) {
      look.error = std::string(answer.status().message());
      return look;
    }
    if (auto known = service.OnAnswer(*answer, absl::Now())) return *std::move(known);
  }
  look.error = "its answers are none that are documented";
  return look;
}

std::vector<NoticeChange> NoticeRules::OnLook(const NoticeLook& look) {
  if (!look.error.empty()) return {};
  const bool was_unsure = std::exchange(was_unsure_, look.unsure);
  if (look.id == id_ || (look.unsure && !was_unsure)) return {};
  std::vector<NoticeChange> changes;
  if (!id_.empty()) changes.emplace_back(NoticeWithdrawn{reason_});
  id_ = look.id;
  reason_ = look.reason;
  if (!id_.empty()) {
    changes.emplace_back(
        NoticeGiven{.remaining = look.remaining.value_or(grace_), .reason = reason_});
  }
  return changes;
}

NoticeWatch::NoticeWatch(const NoticeOptions& options, const GetVariable& get_variable,
                         const Background& background)
    : options_(options),
      slurm_end_(get_variable("SLURM_JOB_END_TIME")),
      service_(MakeMetadataService(options.source, get_variable)),
      background_(background),
      rules_(options.grace) {
  if (options.source == NoticeSource::kNone || options.source == NoticeSource::kKubernetes)
    due_ = TimePoint::max();
}

std::optional<TimePoint> NoticeWatch::NextDeadline() const {
  // The result of a look that is late wakes the loop by itself.
  return due_ == TimePoint::max() ? std::nullopt : std::optional(due_);
}

std::optional<std::string> NoticeWatch::TakeProblem(const std::string& error) {
  if (error.empty() || std::exchange(has_failed_, true)) return std::nullopt;
  std::string source = options_.file;
  if (service_ != nullptr)
    source = absl::StrCat("the metadata server at ", EndpointText(service_->server));
  if (options_.source == NoticeSource::kSlurm) source = "the end of this Slurm job";
  return absl::StrCat("--preempt-notice cannot look for ", source, ": ", error,
                      "; the run goes on, and a notice is not seen until that ends");
}

std::vector<NoticeChange> NoticeWatch::OnTurn(TimePoint now, std::optional<std::string>& problem) {
  std::vector<NoticeChange> changes;
  if (const auto look = TakeResult(look_)) {
    problem = TakeProblem(look->error);
    changes = rules_.OnLook(*look);
    due_ = now + (service_ == nullptr                     ? kNoticeFileInterval
                  : options_.source == NoticeSource::kGcp ? kGcpInterval
                                                          : kMetadataInterval);
  }
  if (due_ > now) return changes;
  if (options_.source == NoticeSource::kSlurm) return OnSlurmTurn(now, problem);
  if (look_.valid()) {
    due_ = TimePoint::max();
    problem = TakeProblem("it does not answer");
    return changes;
  }
  look_ = background_.Start<NoticeLook>([path = options_.file, service = service_] {
    return service == nullptr ? LookAtNoticeFile(path) : AskMetadata(*service);
  });
  due_ = service_ == nullptr ? now + kNoticeFileTimeout : TimePoint::max();  // requests end
  return changes;
}

// All nodes of the job have the same end; each gives the notice when --notice-grace is left.
std::vector<NoticeChange> NoticeWatch::OnSlurmTurn(TimePoint now,
                                                   std::optional<std::string>& problem) {
  std::int64_t end = 0;
  due_ = TimePoint::max();
  if (!slurm_end_ || !absl::SimpleAtoi(*slurm_end_, &end)) {
    problem = TakeProblem("SLURM_JOB_END_TIME is not set");
    return {};
  }
  const milliseconds left = absl::ToChronoMilliseconds(absl::FromUnixSeconds(end) - absl::Now());
  if (left > options_.grace) {
    due_ = now + std::min<Duration>(left - options_.grace, kSlurmLookMax);
    return {};
  }
  return {NoticeGiven{.remaining = std::max(left, milliseconds(0)),
                      .reason = "slurm: the job's time limit"}};
}

}  // namespace ddprun
