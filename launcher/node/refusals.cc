// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/refusals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {

void Refusals::Begin(RunWatcher* next, std::function<void()> wake) {
  next_ = next;
  wake_ = std::move(wake);
}

void Refusals::OnNotice(const std::string& run_id, const RunNotice& note) {
  if (next_ != nullptr) next_->OnNotice(run_id, note);
  if (note.kind != NoticeKind::kNodeRefused) return;
  {
    absl::MutexLock lock(&mutex_);
    if (untaken_.size() < kRefusalsMax) untaken_.push_back({run_id, note});
    unshown_ = note.words;
    ++unshown_count_;
  }
  wake_();
}

void Refusals::OnStoreOperations(const std::string& run_id, std::size_t count) {
  if (next_ != nullptr) next_->OnStoreOperations(run_id, count);
}

void Refusals::OnStep(const RunState& before, const MembershipEvent& event, TimePoint now) {
  if (next_ != nullptr) next_->OnStep(before, event, now);
}

std::vector<Refusals::Refused> Refusals::TakeAll() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(untaken_, {});
}

std::optional<std::string> Refusals::TakeLine(TimePoint now) {
  absl::MutexLock lock(&mutex_);
  if (unshown_count_ == 0 || now < show_after_) return std::nullopt;
  show_after_ = now + kRefusalInterval;
  std::string line = absl::StrCat("refused a node: ", unshown_);
  if (const std::uint64_t others = std::exchange(unshown_count_, 0) - 1; others > 0) {
    absl::StrAppend(&line, " (and ", others, others == 1 ? " other" : " others", " before it)");
  }
  return line;
}

std::optional<TimePoint> Refusals::NextDeadline() {
  absl::MutexLock lock(&mutex_);
  return unshown_count_ == 0 ? std::nullopt : std::optional(show_after_);
}

}  // namespace ddprun
