// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/slurm_comment.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/text.h"

namespace ddprun {

SlurmComment::SlurmComment(std::string job)
    : job_(std::move(job)), command_(kSlurmCommentTimeout) {}

std::optional<TimePoint> SlurmComment::NextDeadline() const {
  if (job_.empty()) return std::nullopt;
  return command_.NextDeadline().value_or(due_);
}

std::optional<std::string> SlurmComment::OnTurn(const std::function<std::string()>& text,
                                                const sigset_t& signal_mask, Poller& poller,
                                                TimePoint now) {
  if (job_.empty()) return std::nullopt;
  std::optional<std::string> problem;
  const auto result = command_.OnTurn(poller, now);
  if (result.has_value() && !result->success() && !std::exchange(failed_, true)) {
    problem = absl::StrCat("the job's comment could not be set: scontrol ",
                           WhyFailed(*result, kSlurmCommentTimeout, "--slurm-comment"),
                           "; it is tried again, and the run goes on");
  }
  if (command_.NextDeadline().has_value() || due_ > now) return problem;
  std::string comment = text().substr(0, kSlurmCommentBytesMax);
  due_ = now + (comment.empty() ? kSlurmCommentLook : kSlurmCommentInterval);
  if (comment.empty() || comment == last_) return problem;
  last_ = std::move(comment);
  command_.Begin(absl::StrCat("exec scontrol update ", ShellQuote("JobId=" + job_), " ",
                              ShellQuote("Comment=" + last_)),
                 signal_mask, poller, now);
  return problem;
}

}  // namespace ddprun
