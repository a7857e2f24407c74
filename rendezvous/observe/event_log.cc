// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/event_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/output_file.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Shared with the thread, which may outlive the log where a disk hangs.
struct EventLog::Shared {
  Shared(OwnedFd to, std::string name, Notify tell)
      : file(std::move(to)), path(std::move(name)), notify(std::move(tell)) {}

  void Report(const std::string& sentence) const {
    if (notify) notify(absl::StrCat("the event log ", path, " ", sentence));
  }

  const OwnedFd file;
  const std::string path;
  const Notify notify;
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

// For opening the log: a disk that does not answer must not keep ddprun from starting or stopping.
constexpr std::chrono::seconds kEventLogOpenTimeout{2};

// Returns the bytes that were written before the first error.
std::size_t WriteAll(int fd, std::string_view bytes, int& error) {
  std::size_t done = 0;
  error = 0;
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
    if (count <= 0) {
      error = count < 0 ? errno : ENOSPC;
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::string Missing(std::uint64_t events) {
  return absl::StrCat("lacks ", events, events == 1 ? " event" : " events");
}

}  // namespace

// Ends a line that a full disk has cut before it writes the next one.
void EventLog::WriteUntilClosed(const std::shared_ptr<Shared>& shared) {
  bool cut = false;
  bool failing = false;
  std::uint64_t unsaid = 0;
  while (true) {
    std::string events;
    {
      absl::MutexLock lock(&shared->mutex);
      shared->mutex.Await(absl::Condition(shared.get(), &Shared::HasWork));
      events.swap(shared->waiting);
      unsaid += std::exchange(shared->dropped, 0);
      if (events.empty() && shared->closing) {
        if (unsaid > 0) shared->Report(absl::StrCat(Missing(unsaid), " at its end"));
        shared->ended = true;
        return;
      }
    }
    std::string bytes = cut ? "\n" : "";
    if (unsaid > 0) {
      RunEvent dropped;
      dropped.event = "events.dropped";
      dropped.fields.emplace_back("count", static_cast<std::int64_t>(unsaid));
      bytes += Line(dropped);
    }
    const std::size_t events_begin = bytes.size();
    bytes += events;
    int error = 0;
    const std::size_t done = WriteAll(shared->file.get(), bytes, error);
    if (done >= events_begin && failing && unsaid > 0)
      shared->Report(absl::StrCat("is written again; it ", Missing(unsaid)));
    if (done >= events_begin) unsaid = 0;
    failing = done < bytes.size() && (failing && done < events_begin);
    if (done == bytes.size()) {
      cut = false;
      continue;
    }
    if (!std::exchange(failing, true)) {
      shared->Report(absl::StrCat(
          "cannot be written: ", error == EAGAIN ? "no process reads it" : ErrnoText(error),
          "; events are missing in it from now on, and the run goes on"));
    }
    cut = done > 0 ? bytes[done - 1] != '\n' : cut;
    const std::size_t lost_begin = std::max(done, events_begin);
    unsaid += static_cast<std::uint64_t>(
        std::count(bytes.begin() + static_cast<std::ptrdiff_t>(lost_begin), bytes.end(), '\n'));
  }
}

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path, Notify notify) {
  const int own = path == "-" ? STDOUT_FILENO : OwnDescriptor(path);
  struct Opened {
    OwnedFd file;
    std::string reason;
  };
  auto opened = CallWithDeadline<Opened>(kEventLogOpenTimeout, [own, path] {
    Opened result;
    if (own >= 0) {
      result.file = OwnedFd(fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    } else {
      const absl::StatusOr<std::string> end = FollowLinks(path);
      if (!end.ok()) {
        result.reason = std::string(end.status().message());
        return result;
      }
      constexpr int kFlags =
          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
      result.file = OwnedFd(open(end->c_str(), kFlags, 0644));
    }
    if (!result.file.valid())
      result.reason = errno == ENXIO ? "it is a FIFO that nothing reads from" : ErrnoText(errno);
    return result;
  });
  if (!opened.has_value() || !opened->file.valid()) {
    const std::string why = opened.has_value() ? opened->reason
                                               : absl::StrCat("its disk has not answered for ",
                                                              kEventLogOpenTimeout.count(), " s");
    return absl::UnavailableError(absl::StrCat("cannot open the event log ", path, ": ", why,
                                               "; name another file with --event-log"));
  }
  return std::unique_ptr<EventLog>(
      new EventLog(std::make_shared<Shared>(std::move(opened->file), path, std::move(notify))));
}

EventLog::EventLog(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {
  const SignalsBlocked blocked;
  std::thread([held = shared_] { WriteUntilClosed(held); }).detach();
}

EventLog::~EventLog() {
  absl::MutexLock lock(&shared_->mutex);
  shared_->closing = true;
  if (!shared_->mutex.AwaitWithTimeout(absl::Condition(shared_.get(), &Shared::HasEnded),
                                       absl::FromChrono(kEventLogCloseTimeout)))
    shared_->Report("lacks its last events: its disk does not answer");
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
