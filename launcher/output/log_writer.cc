// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/bounded_call.h"

namespace ddprun {
namespace {

// How often a waiting Flush() checks for an interrupt.
constexpr std::chrono::milliseconds kInterruptInterval{50};

bool IsReadable(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return fd >= 0 && poll(&one, 1, 0) == 1;
}

}  // namespace

// ---- The owner's side

std::shared_ptr<LogWriter> LogWriter::Make(const Limits& limits) {
  const std::shared_ptr<LogWriter> writer(new LogWriter(limits));
  return {writer.get(), [writer](LogWriter*) { writer->Stop(); }};
}

int LogWriter::Add(std::unique_ptr<LogFile> file) {
  const Lock lock(mutex_);
  const int number = next_number_++;
  entries_[number].file = std::move(file);
  if (!started_) {
    started_ = true;
    if (const std::error_code error = RunDetached([self = shared_from_this()] { self->Run(); })) {
      Note(absl::StrCat("cannot start a thread to write ", limits_.subject, ": ", error.message(),
                        "; they stay empty; see `ulimit -u`"));
    }
  }
  work_.notify_one();
  return number;
}

bool LogWriter::AllOpen() const {
  bool all = true;
  for (const auto& [number, entry] : entries_) {
    all = all && (entry.closing || entry.opened.has_value());
  }
  return all;
}

std::optional<absl::Status> LogWriter::Opened() {
  const Lock lock(mutex_);
  for (const auto& [number, entry] : entries_) {
    if (!entry.closing && entry.opened.has_value() && !entry.opened->ok()) return *entry.opened;
  }
  return AllOpen() ? std::optional(absl::OkStatus()) : std::nullopt;
}

void LogWriter::GoOnUnopened(std::chrono::milliseconds waited) {
  const Lock lock(mutex_);
  Note(absl::StrCat("the disk of ", limits_.subject, " has not answered for ", waited.count(),
                    " ms; the run goes on, and up to ", limits_.queue_bytes_max >> 20,
                    " MiB of output are queued"));
}

void LogWriter::Append(int number, std::string_view bytes) {
  const Lock lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.closing) return;
  Entry& entry = found->second;
  const std::size_t limit = losing_ ? limits_.queue_bytes_max / 2 : limits_.queue_bytes_max;
  const bool has_room = queued_bytes_ + bytes.size() <= limit;
  const std::size_t waiting_before = entry.waiting.size();
  entry.gap.Admit(bytes, has_room, entry.waiting);
  queued_bytes_ += entry.waiting.size() - waiting_before;
  if (!has_room && !losing_) {
    Note(
        absl::StrCat("the disk of ", limits_.subject,
                     " is too slow or full: lines are missing from now on, each file states where; "
                     "the run goes on"));
  }
  losing_ = !has_room;
  work_.notify_one();
}

void LogWriter::Close(int number) {
  const Lock lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.closing) return;
  Entry& entry = found->second;
  const std::size_t waiting_before = entry.waiting.size();
  entry.gap.Finish(entry.waiting);
  queued_bytes_ += entry.waiting.size() - waiting_before;
  lost_lines_ += entry.gap.lost_lines();
  entry.closing = true;
  work_.notify_one();
}

bool LogWriter::Flush(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
                      int interrupt_fd) {
  Lock lock(mutex_);
  const Clock::time_point end = Clock::now() + timeout;
  Clock::time_point deadline = std::min(end, Clock::now() + stall_timeout);
  std::uint64_t written_before = written_bytes_;
  const auto idle = [this] {
    for (const auto& [number, entry] : entries_) {
      if (entry.HasWork()) return false;
    }
    return queued_bytes_ == 0;
  };
  while (!idle()) {
    const Clock::time_point now = Clock::now();
    if (written_bytes_ != written_before) deadline = std::min(end, now + stall_timeout);
    written_before = written_bytes_;
    if (now >= deadline || IsReadable(interrupt_fd)) return false;
    done_.wait_until(lock, std::min(deadline, now + kInterruptInterval),
                     [&] { return idle() || written_bytes_ != written_before; });
  }
  return true;
}

void LogWriter::Stop() {
  const Lock lock(mutex_);
  stopping_ = true;
  work_.notify_one();
}

void LogWriter::Note(std::string sentence) {
  notices_.push_back(std::move(sentence));
  notice_.Notify();
}

std::function<void(const std::string&)> LogWriter::NoticeSink() {
  return [self = shared_from_this()](const std::string& sentence) {
    const Lock lock(self->mutex_);
    self->Note(sentence);
  };
}

std::vector<std::string> LogWriter::TakeNotices() {
  const Lock lock(mutex_);
  notice_.Clear();
  return std::exchange(notices_, {});
}

bool LogWriter::NoteMissing(bool complete) {
  const std::uint64_t lost = lost_lines();
  const Lock lock(mutex_);
  const bool bytes = !complete && queued_bytes_ > 0;
  if (bytes) {
    Note(absl::StrCat(queued_bytes_, " bytes of the output were not written to ", limits_.subject,
                      ": the disk does not accept them"));
  }
  if (lost > 0) {
    Note(absl::StrCat(lost, lost == 1 ? " line is" : " lines are", " missing in ", limits_.subject,
                      ": the disk was too slow or full; each file states where"));
  }
  return bytes || lost > 0;
}

std::uint64_t LogWriter::lost_lines() {
  const Lock lock(mutex_);
  std::uint64_t lines = lost_lines_;
  for (const auto& [number, entry] : entries_) {
    if (!entry.closing) lines += entry.gap.lost_lines();
  }
  return lines;
}

std::uint64_t LogWriter::waiting_bytes() {
  const Lock lock(mutex_);
  return queued_bytes_;
}

// ---- The thread's side

// Round robin, so that one large log does not delay the others.
std::optional<int> LogWriter::NextWithWork(std::optional<Clock::time_point>& wake_time) {
  const Clock::time_point now = Clock::now();
  std::optional<int> first;
  for (const auto& [number, entry] : entries_) {
    if (!entry.HasWork()) continue;
    if (entry.retry_time > now) {
      wake_time = std::min(wake_time.value_or(entry.retry_time), entry.retry_time);
      continue;
    }
    if (number > last_served_) return number;
    if (!first.has_value()) first = number;
  }
  return first;
}

void LogWriter::Run() {
  Lock lock(mutex_);
  while (!stopping_) {
    std::optional<Clock::time_point> wake_time;
    if (const std::optional<int> number = NextWithWork(wake_time); number.has_value()) {
      Serve(lock, *number);
      last_served_ = *number;
      done_.notify_all();
    } else if (wake_time.has_value()) {
      work_.wait_until(lock, *wake_time);
    } else {
      work_.wait(lock);
    }
  }
}

void LogWriter::Serve(Lock& lock, int number) {
  Entry& entry = entries_[number];  // only this thread removes entries
  const std::string batch =
      std::exchange(entry.refused.empty() ? entry.waiting : entry.refused, {});
  std::size_t written = 0;
  lock.unlock();
  const absl::Status status =
      batch.empty() ? entry.file->Open() : entry.file->Write(batch, written);
  lock.lock();
  const bool first_attempt = !entry.opened.has_value();
  if (first_attempt || status.ok()) entry.opened = status;
  if (first_attempt) notice_.Notify();  // Opened() may have a result now
  queued_bytes_ -= written;
  written_bytes_ += written;
  entry.refused = batch.substr(written);
  if (!status.ok()) {
    entry.retry_time = Clock::now() + limits_.retry_interval;
    // Opened() returns the result of the first attempt.
    if (!first_attempt) NoteRefusal(status);
  } else if (refused_ && written > 0) {
    refused_ = false;
    Note(absl::StrCat(limits_.subject, " are written again"));
  }
  if (!entry.closing || !entry.refused.empty() || !entry.waiting.empty()) return;
  // close() may block, too.
  std::unique_ptr<LogFile> file = std::move(entry.file);
  entries_.erase(number);
  lock.unlock();
  file.reset();
  lock.lock();
}

void LogWriter::NoteRefusal(const absl::Status& status) {
  if (refused_) return;
  refused_ = true;
  Note(absl::StrCat(status.message(), "; the run goes on, and up to ",
                    limits_.queue_bytes_max >> 20, " MiB of output wait until it can be written"));
}

}  // namespace ddprun
