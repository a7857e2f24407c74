// SPDX-License-Identifier: Apache-2.0
#include "launcher/notify/notify_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

std::string FieldOf(const RunEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.fields) {
    const auto* text = std::get_if<std::string>(&value);
    if (key == name && text != nullptr) return *text;
  }
  return "";
}

std::optional<int> NumberOf(const RunEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.fields) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (key == name && number != nullptr) return static_cast<int>(*number);
  }
  return std::nullopt;
}

// An agent's own events have no sentence.
std::string TextOf(const RunEvent& event) {
  if (!event.text.empty()) return event.text;
  if (event.event == "round.started") {
    return absl::StrCat("round ", ToNumber(event.round),
                        " begins: ", NumberOf(event, "world_size").value_or(0), " workers on ",
                        NumberOf(event, "nodes").value_or(0), " nodes");
  }
  return FieldOf(event, "reason");
}

bool IsWarning(const std::string& event) {
  return event == "rank.slow" || event == "rank.damaged" || event == "ranks.wait" ||
         event == "node.notice" || event == "node.lost";
}

}  // namespace

void NotifySchedule::Add(const char* event, std::string text) {
  event_ = event;
  texts_.push_back(std::move(text));
  if (texts_.size() <= kNotifyTextsMax) return;
  texts_.pop_front();
  ++left_out_;
}

void NotifySchedule::OnEvent(const RunEvent& event, TimePoint now) {
  if (!event.run_id.empty()) run_id_ = event.run_id;
  if (event.event == "round.started") {
    if (!alive_since_.has_value()) alive_since_ = now;
    Add(std::exchange(begun_, true) ? "restarted" : "started", TextOf(event));
  } else if (event.event == "round.broken") {
    rank_ = NumberOf(event, "cause_rank");
    Add("broken", TextOf(event));
  } else if (IsWarning(event.event)) {
    Add("warning", TextOf(event));
  }
}

void NotifySchedule::OnEnd(int exit_code, const std::string& text) {
  exit_code_ = exit_code;
  Add(exit_code == 0 ? "finished" : "failed",
      exit_code == 0 && text.empty() ? "all workers succeeded" : text);
}

bool NotifySchedule::IsAliveDue(TimePoint now) const {
  const auto next = NextDeadline();
  return event_.empty() && next.has_value() && *next <= now;
}

std::optional<TimePoint> NotifySchedule::NextDeadline() const {
  if (ended_) return std::nullopt;
  if (!event_.empty()) {
    if (!sent_.has_value() || exit_code_.has_value()) return retry_;
    return *sent_ + kNotifyInterval;
  }
  if (alive_.count() == 0 || !alive_since_.has_value()) return std::nullopt;
  return *alive_since_ + alive_;
}

void NotifySchedule::OnResult(bool taken, TimePoint now) {
  const auto sent = std::exchange(under_way_, std::nullopt);
  if (taken || !sent.has_value()) return;
  if (event_.empty()) event_ = sent->event;
  if (!rank_.has_value()) rank_ = sent->rank;
  texts_.push_front(sent->text);
  retry_ = now + kNotifyRetryInterval;
  ended_ = false;
}

std::optional<Notification> NotifySchedule::Take(const std::string& progress, TimePoint now) {
  if (IsAliveDue(now)) Add("alive", progress.empty() ? "it goes on" : progress);
  const auto due = NextDeadline();
  if (event_.empty() || !due.has_value() || *due > now) return std::nullopt;
  Notification notification{.event = std::exchange(event_, ""),
                            .run_id = run_id_,
                            .host = host_,
                            .text = absl::StrJoin(std::exchange(texts_, {}), "\n"),
                            .rank = std::exchange(rank_, std::nullopt),
                            .exit_code = exit_code_};
  if (left_out_ > 0) {
    notification.text = absl::StrCat("(", std::exchange(left_out_, 0), " earlier ones left out)\n",
                                     notification.text);
  }
  ended_ = exit_code_.has_value();
  sent_ = now;
  alive_since_ = now;
  under_way_ = notification;
  return notification;
}

}  // namespace ddprun
