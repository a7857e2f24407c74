// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/copy_set.h"

#include <algorithm>
#include <utility>

namespace ddprun {

std::uint64_t CopySet::Append(std::string record, TimePoint now) {
  ++last_record_;
  segment_bytes_ += record.size();
  const auto bytes = std::make_shared<const std::string>(std::move(record));
  for (auto& [id, copy] : copies_) {
    if (!copy.has_begun) continue;
    Push(copy, {CopyKind::kRecords, bytes, last_record_});
    if (copy.counts && !copy.behind_since) copy.behind_since = now;
  }
  return last_record_;
}

std::uint64_t CopySet::safe_record() const {
  std::uint64_t safe = last_record_;
  for (const auto& [id, copy] : copies_) {
    if (copy.counts) safe = std::min(safe, copy.acknowledged);
  }
  return safe;
}

bool CopySet::WantsSnapshot() const {
  if (copies_.empty()) return false;
  return segment_bytes_ >= segment_bytes_max_ ||
         std::any_of(copies_.begin(), copies_.end(),
                     [](const auto& entry) { return !entry.second.has_begun; });
}

void CopySet::Snapshot(std::vector<std::string> parts) {
  std::vector<std::shared_ptr<const std::string>> shared;
  shared.reserve(parts.size());
  for (std::string& part : parts)
    shared.push_back(std::make_shared<const std::string>(std::move(part)));
  const bool for_all = segment_bytes_ >= segment_bytes_max_;
  if (for_all) segment_bytes_ = 0;
  for (auto& [id, copy] : copies_) {
    if (for_all || !copy.has_begun) PushSnapshot(copy, shared);
  }
}

CopySet::CopyId CopySet::Add() {
  Copy& copy = copies_[++last_copy_];
  if (is_empty_ && last_record_ == 0) PushSnapshot(copy, {});
  return last_copy_;
}

std::size_t CopySet::unsent(CopyId copy) const {
  const auto found = copies_.find(copy);
  return found == copies_.end() ? 0 : found->second.unsent.size();
}

std::vector<CopyPiece> CopySet::Take(CopyId copy, std::size_t bytes_max) {
  std::vector<CopyPiece> pieces;
  const auto found = copies_.find(copy);
  if (found == copies_.end()) return pieces;
  std::deque<CopyPiece>& unsent = found->second.unsent;
  std::size_t bytes = 0;
  while (!unsent.empty() &&
         (pieces.empty() || (bytes < bytes_max && unsent.front().kind == pieces.front().kind))) {
    if (unsent.front().bytes != nullptr) bytes += unsent.front().bytes->size();
    pieces.push_back(std::move(unsent.front()));
    unsent.pop_front();
  }
  found->second.unsent_bytes -= bytes;
  return pieces;
}

void CopySet::Acknowledge(CopyId copy, std::uint64_t record, TimePoint now) {
  const auto found = copies_.find(copy);
  if (found == copies_.end()) return;
  Copy& one = found->second;
  if (!one.has_begun || record > last_record_ || record < one.acknowledged) return;
  one.acknowledged = record;
  if (!one.counts) Push(one, {CopyKind::kCounts, nullptr, 0});
  one.counts = true;
  one.behind_since = record < last_record_ ? std::optional<TimePoint>(now) : std::nullopt;
}

std::vector<CopySet::CopyId> CopySet::GiveUpOverdue(TimePoint now) {
  std::vector<CopyId> overdue;
  for (const auto& [id, copy] : copies_) {
    const bool takes_nothing = copy.behind_since && now >= *copy.behind_since + kCopyTimeout;
    if (takes_nothing || copy.unsent_bytes > kJournalQueueBytesMax) overdue.push_back(id);
  }
  for (const CopyId id : overdue) copies_.erase(id);
  return overdue;
}

std::optional<TimePoint> CopySet::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, copy] : copies_) {
    if (copy.behind_since) next = Earliest({next, *copy.behind_since + kCopyTimeout});
  }
  return next;
}

std::size_t CopySet::counting() const {
  return static_cast<std::size_t>(std::count_if(
      copies_.begin(), copies_.end(), [](const auto& entry) { return entry.second.counts; }));
}

std::optional<CopySet::CopyId> CopySet::HandOver() {
  for (auto& [id, copy] : copies_) {
    if (!copy.counts || copy.acknowledged != last_record_) continue;
    Push(copy, {CopyKind::kLead, nullptr, last_record_});
    return id;
  }
  return std::nullopt;
}

void CopySet::Push(Copy& copy, CopyPiece piece) {
  if (piece.bytes != nullptr) copy.unsent_bytes += piece.bytes->size();
  copy.unsent.push_back(std::move(piece));
}

void CopySet::PushSnapshot(Copy& copy,
                           const std::vector<std::shared_ptr<const std::string>>& parts) {
  for (const auto& part : parts) Push(copy, {CopyKind::kParts, part, 0});
  Push(copy, {CopyKind::kSnapshotEnd, nullptr, last_record_});
  copy.has_begun = true;
}

}  // namespace ddprun
