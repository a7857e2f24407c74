// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/event_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/output_file.h"
#include "rendezvous/limits.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {

// Held by the thread too, which may outlive the log where a disk hangs.
struct EventLog::Shared {
  explicit Shared(OwnedFd to) : file(std::move(to)) {}

  const OwnedFd file;
  absl::Mutex mutex;
  std::string waiting ABSL_GUARDED_BY(mutex);  // whole lines
  std::uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return !waiting.empty() || closing; }
  bool HasEnded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return ended; }
};

namespace {

std::string Line(const RunEvent& event) {
  return ToJsonLine(event, std::chrono::system_clock::now(), std::chrono::steady_clock::now());
}

// How many bytes were written before the first error.
std::size_t WriteAll(int fd, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      if (poll(&ready, 1,
               static_cast<int>(
                   absl::ToInt64Milliseconds(absl::FromChrono(kEventLogCloseTimeout)))) > 0) {
        continue;
      }
    }
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace

// A line that was cut by a full disk is ended before the next one.
void EventLog::WriteUntilClosed(const std::shared_ptr<Shared>& shared) {
  bool cut = false;
  std::uint64_t unsaid = 0;
  while (true) {
    std::string bytes;
    {
      absl::MutexLock lock(&shared->mutex);
      shared->mutex.Await(absl::Condition(shared.get(), &Shared::HasWork));
      bytes.swap(shared->waiting);
      unsaid += std::exchange(shared->dropped, 0);
      if (bytes.empty() && shared->closing) {
        shared->ended = true;
        return;
      }
    }
    if (unsaid > 0) {
      RunEvent dropped;
      dropped.event = "events.dropped";
      dropped.fields.emplace_back("count", static_cast<std::int64_t>(unsaid));
      bytes.insert(0, Line(dropped));
    }
    if (cut) bytes.insert(0, "\n");
    const std::size_t done = WriteAll(shared->file.get(), bytes);
    if (done == bytes.size()) {
      cut = false;
      unsaid = 0;
      continue;
    }
    cut = done > 0 ? bytes[done - 1] != '\n' : cut;
    unsaid += static_cast<std::uint64_t>(
        std::count(bytes.begin() + static_cast<std::ptrdiff_t>(done), bytes.end(), '\n'));
  }
}

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path) {
  const int own = path == "-" ? STDOUT_FILENO : OwnDescriptor(path);
  const absl::StatusOr<std::string> end = FollowLinks(path);
  constexpr int kFlags =
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  OwnedFd file(own >= 0   ? fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
               : end.ok() ? open(end->c_str(), kFlags, 0644)
                          : -1);
  if (!file.valid()) {
    const std::string reason = !end.ok()        ? std::string(end.status().message())
                               : errno == ENXIO ? "it is a FIFO that nothing reads from"
                                                : std::strerror(errno);
    return absl::UnavailableError(absl::StrCat("cannot open the event log ", path, ": ", reason,
                                               "; name another file with --event-log"));
  }
  return std::unique_ptr<EventLog>(new EventLog(std::make_shared<Shared>(std::move(file))));
}

// Signals are for the others, and a pipe whose reader is gone is an error like any other.
EventLog::EventLog(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([held = shared_] { WriteUntilClosed(held); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EventLog::~EventLog() {
  absl::MutexLock lock(&shared_->mutex);
  shared_->closing = true;
  shared_->mutex.AwaitWithTimeout(absl::Condition(shared_.get(), &Shared::HasEnded),
                                  absl::FromChrono(kEventLogCloseTimeout));
}

void EventLog::Write(const RunEvent& event) {
  std::string line = Line(event);
  absl::MutexLock lock(&shared_->mutex);
  if (shared_->waiting.size() + line.size() > kEventLogBytesMax) {
    ++shared_->dropped;
    return;
  }
  shared_->waiting += line;
}

}  // namespace ddprun
