// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/copied_journal.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::uint64_t CopiedJournal::Append(std::string record) {
  Lock lock(mutex_);
  return copies_.Append(std::move(record), Clock::now());
}

// Whoever waits also gives up the copies that take nothing.
absl::Status CopiedJournal::Commit(std::uint64_t record) {
  std::vector<std::function<void()>> work;
  {
    Lock lock(mutex_);
    work = Work();
  }
  for (const auto& wake : work) wake();
  while (true) {
    std::vector<Peer> given_up;
    {
      Lock lock(mutex_);
      record = std::min(record, copies_.last_record());
      const auto is_over = [&] { return !closed_.ok() || copies_.safe_record() >= record; };
      if (!is_over()) {
        changed_.wait_until(lock, copies_.NextDeadline().value_or(Clock::now()), is_over);
      }
      given_up = GiveUpOverdue();
      if (given_up.empty() && is_over()) return closed_;
    }
    NoteChange(given_up);
  }
}

bool CopiedJournal::WantsSnapshot() {
  Lock lock(mutex_);
  return copies_.WantsSnapshot();
}

void CopiedJournal::Snapshot(std::vector<std::string> parts) {
  std::vector<std::function<void()>> work;
  {
    Lock lock(mutex_);
    copies_.Snapshot(std::move(parts));
    ++snapshots_;
    work = Work();
  }
  for (const auto& wake : work) wake();
}

JournalReport CopiedJournal::Report() {
  Lock lock(mutex_);
  JournalReport report;
  report.snapshots = snapshots_;
  report.error = closed_;
  return report;
}

CopySet::CopyId CopiedJournal::Attach(Peer peer) {
  Lock lock(mutex_);
  const CopySet::CopyId copy = copies_.Add();
  peers_.emplace(copy, std::move(peer));
  return copy;
}

void CopiedJournal::Detach(CopySet::CopyId copy) {
  {
    Lock lock(mutex_);
    copies_.Remove(copy);
    peers_.erase(copy);
  }
  changed_.notify_all();
  NoteChange({});
}

std::vector<CopyPiece> CopiedJournal::Take(CopySet::CopyId copy, std::size_t bytes_max) {
  Lock lock(mutex_);
  std::vector<CopyPiece> pieces = copies_.Take(copy, bytes_max);
  if (!pieces.empty() && pieces.back().kind == CopyKind::kLead) changed_.notify_all();
  return pieces;
}

void CopiedJournal::Acknowledge(CopySet::CopyId copy, std::uint64_t record) {
  std::vector<std::function<void()>> work;
  {
    Lock lock(mutex_);
    copies_.Acknowledge(copy, record, Clock::now());
    work = Work();
  }
  changed_.notify_all();
  for (const auto& wake : work) wake();
  NoteChange({});
}

void CopiedJournal::Close(const absl::Status& why) {
  {
    Lock lock(mutex_);
    if (closed_.ok()) closed_ = why;
  }
  changed_.notify_all();
}

std::string CopiedJournal::HandOver(std::chrono::milliseconds timeout) {
  const TimePoint deadline = Clock::now() + timeout;
  Peer peer;
  std::optional<CopySet::CopyId> next;
  {
    Lock lock(mutex_);
    // The last acknowledgements may still be on their way.
    changed_.wait_until(lock, deadline, [&] {
      next = copies_.HandOver();
      return next.has_value() || copies_.counting() == 0;
    });
    if (!next) return "";
    peer = peers_[*next];
  }
  peer.on_work();
  Lock lock(mutex_);
  // The copy ends its connection once it has read that it leads; until then the message may be
  // lost.
  const bool has_ended = changed_.wait_until(lock, deadline, [&] { return !copies_.Has(*next); });
  return has_ended ? peer.name : "";
}

std::vector<CopiedJournal::Peer> CopiedJournal::GiveUpOverdue() {
  std::vector<Peer> peers;
  for (const CopySet::CopyId copy : copies_.GiveUpOverdue(Clock::now())) {
    if (auto peer = peers_.extract(copy)) peers.push_back(std::move(peer.mapped()));
  }
  return peers;
}

std::vector<std::function<void()>> CopiedJournal::Work() {
  std::vector<std::function<void()>> work;
  for (const auto& [copy, peer] : peers_) {
    if (copies_.unsent(copy) > 0) work.push_back(peer.on_work);
  }
  return work;
}

void CopiedJournal::NoteChange(const std::vector<Peer>& given_up) {
  for (const Peer& peer : given_up) peer.on_given_up();
  std::string sentence;
  {
    Lock lock(mutex_);
    if (copies_.counting() == counting_) return;
    counting_ = copies_.counting();
    sentence = counting_ == 0
                   ? "leads without a copy: if its machine is lost now, so is the run"
                   : absl::StrCat("leads, and ", counting_,
                                  counting_ == 1 ? " other service has" : " other services have",
                                  " a copy of its journal");
  }
  on_change_(sentence);
}

}  // namespace ddprun
