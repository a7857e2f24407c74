// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_folder.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// The estimated memory of a group besides its text.
constexpr std::size_t kGroupOverheadBytes = 256;

std::string KeyOf(OutputStream stream, std::string_view text) {
  std::string key(1, stream == OutputStream::kOut ? 'o' : 'e');
  key += text;
  return key;
}

std::size_t CostOf(std::string_view text) { return 2 * text.size() + kGroupOverheadBytes; }

}  // namespace

void LineFolder::Start(int count) {
  workers_.assign(static_cast<std::size_t>(count), Worker{.active = true, .last = first_ - 1});
  idle_ = count;
  pending_.clear();
  by_key_.clear();
  bytes_ = 0;
}

std::uint64_t LineFolder::NumberToJoin(const Worker& worker, const std::string& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return 0;
  const auto number = std::upper_bound(found->second.begin(), found->second.end(), worker.last);
  return number == found->second.end() ? 0 : *number;
}

LineFolder::Groups LineFolder::Add(int worker_index, OutputStream stream, std::string_view text,
                                   TimePoint now) {
  Worker& worker = workers_[static_cast<std::size_t>(worker_index)];
  if (worker.active && worker.last < first_) --idle_;
  const std::string key = KeyOf(stream, text);
  std::uint64_t number = NumberToJoin(worker, key);
  if (number == 0) {
    number = first_ + pending_.size();
    pending_.push_back({stream, std::string(text), {}, now});
    by_key_[key].push_back(number);
    bytes_ += CostOf(text);
  }
  std::vector<int>& members = pending_[number - first_].workers;
  members.insert(std::upper_bound(members.begin(), members.end(), worker_index), worker_index);
  worker.last = number;
  return Release(now);
}

LineFolder::Groups LineFolder::EndWorker(int worker_index, TimePoint now) {
  Worker& worker = workers_[static_cast<std::size_t>(worker_index)];
  if (worker.active && worker.last < first_) --idle_;
  worker.active = false;
  return Release(now);
}

LineFolder::Groups LineFolder::Expire(TimePoint now) { return Release(now); }

LineFolder::Groups LineFolder::Flush() {
  Groups leaving;
  while (!pending_.empty()) PopFront(leaving);
  return leaving;
}

std::optional<TimePoint> LineFolder::NextDeadline() const {
  if (pending_.empty()) return std::nullopt;
  return pending_.front().time + limits_.window;
}

bool LineFolder::IsOverLimit() const {
  return bytes_ > limits_.bytes_max || pending_.size() > limits_.lines_max;
}

LineFolder::Groups LineFolder::Release(TimePoint now) {
  Groups leaving;
  // A worker with a waiting line has passed the front group or is in it.
  while (!pending_.empty() &&
         (idle_ == 0 || pending_.front().time + limits_.window <= now || IsOverLimit())) {
    PopFront(leaving);
  }
  return leaving;
}

void LineFolder::PopFront(Groups& leaving) {
  Group& group = pending_.front();
  bytes_ -= CostOf(group.text);
  const auto found = by_key_.find(KeyOf(group.stream, group.text));
  found->second.pop_front();
  if (found->second.empty()) by_key_.erase(found);
  for (const int member : group.workers) {
    const Worker& worker = workers_[static_cast<std::size_t>(member)];
    if (worker.active && worker.last == first_) ++idle_;
  }
  leaving.push_back(std::move(group));
  pending_.pop_front();
  ++first_;
}

}  // namespace ddprun
