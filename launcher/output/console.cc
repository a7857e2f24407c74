// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"
#include "launcher/node/control_pipe_protocol.h"

namespace ddprun {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

bool CanWriteNow(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

// True if both are the same terminal, pipe, socket or file, by whatever name they were opened.
bool AreOne(int fd, int other_fd) {
  unsigned terminal = 0;
  unsigned other_terminal = 0;
  if (ioctl(fd, TIOCGDEV, &terminal) == 0 && ioctl(other_fd, TIOCGDEV, &other_terminal) == 0)
    return terminal == other_terminal;
  struct stat info;
  struct stat other;
  return fstat(fd, &info) == 0 && fstat(other_fd, &other) == 0 && info.st_dev == other.st_dev &&
         info.st_ino == other.st_ino;
}

}  // namespace

void Console::Open(int fd) {
  const char* name = sinks_.empty() ? "stdout" : "stderr";
  Sink& sink = sinks_.emplace_back();
  sink.fd = fd;
  struct stat info;
  if (fstat(fd, &info) != 0) {
    sink.closed = true;
    return;
  }
  sink.terminal = isatty(fd) == 1;
  if (S_ISREG(info.st_mode)) {
    sink.file = files_->Add(std::make_unique<LogFile>(name, LogFile::Borrowed{fd}));
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    // O_NONBLOCK on the inherited descriptor would affect every process that shares it, such as the
    // shell.
    const std::string path = absl::StrCat("/proc/self/fd/", fd);
    const int own = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) {
      sink.fd = own;
      sink.owned = true;
      sink.nonblocking = true;
    }
  }
}

Console::Console(int out, int err, const Limits& limits, Form form)
    : limits_(limits),
      form_(form),
      files_(LogWriter::Make({.queue_bytes_max = kLogQueueBytesMax,
                              .retry_interval = kLogRetryInterval,
                              .subject = "the output files"})) {
  sinks_.reserve(2);  // status_sink_ points at one of them
  Open(out);
  if (!AreOne(out, err)) Open(err);
  for (Sink& sink : sinks_) {
    if (sink.terminal) status_sink_ = &sink;
  }
}

Console::~Console() {
  for (const Sink& sink : sinks_) {
    if (sink.owned) close(sink.fd);
  }
}

void Console::WriteLine(OutputStream stream, std::string_view line) {
  Write(stream, "", line, /*own=*/true);
}

void Console::WriteWorkerLine(OutputStream stream, std::string_view prefix, std::string_view line) {
  Write(stream, prefix, line, /*own=*/false);
}

void Console::Write(OutputStream stream, std::string_view prefix, std::string_view line, bool own) {
  if (form_ == Form::kMarked)
    return WriteMarked(stream,
                       absl::StrCat(absl::string_view(prefix.data(), prefix.size()),
                                    absl::string_view(line.data(), line.size())),
                       own);
  Sink& sink = SinkOf(stream);
  if (sink.closed) return;
  if (stream == OutputStream::kErr) last_line_.assign(own ? std::string_view() : line);
  const bool redraw = !status_.empty() && &sink == status_sink_;
  line_.clear();
  if (redraw) line_ += kEraseLine;
  line_ += prefix;
  line_ += line;
  line_ += '\n';
  if (redraw) line_ += FittingStatus();
  Append(sink, line_, own);
}

bool Console::EndsWith(std::string_view words) const {
  const Sink& sink = SinkOf(OutputStream::kErr);
  const bool is_shown = sink.dropped_lines == 0 && !sink.closed;
  return is_shown && !words.empty() && last_line_.ends_with(words);
}

void Console::WriteMarked(OutputStream stream, const std::string& line, bool own) {
  Append(sinks_.front(), absl::StrCat(MarkLine(stream == OutputStream::kErr, line), "\n"), own);
}

void Console::WriteMessage(std::string_view marked_line) {
  Append(sinks_.front(),
         absl::StrCat(absl::string_view(marked_line.data(), marked_line.size()), "\n"),
         /*own=*/true);
}

void Console::SetStatus(std::string_view text) {
  if (status_sink_ == nullptr) return;
  status_ = text;
  // A status is not queued: a slow terminal gets the next one.
  PumpSink(*status_sink_);
  if (status_sink_->backlog.size() == 0)
    Append(*status_sink_, absl::StrCat(kEraseLine, FittingStatus()), /*own=*/true);
}

void Console::ClearStatus() {
  if (status_.empty()) return;
  status_.clear();
  Append(*status_sink_, kEraseLine, /*own=*/true);
}

std::string Console::FittingStatus() const {
  winsize size{};
  const int known = ioctl(status_sink_->fd, TIOCGWINSZ, &size);
  const std::size_t columns = known == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  std::size_t shown = 0;
  std::size_t bytes = 0;
  while (bytes < status_.size()) {
    const bool starts_character = (static_cast<unsigned char>(status_[bytes]) & 0xC0) != 0x80;
    if (starts_character && shown++ == columns) break;
    ++bytes;
  }
  return status_.substr(0, bytes);
}

void Console::Append(Sink& sink, std::string_view text, bool own) {
  if (sink.closed) return;
  if (sink.file >= 0) return files_->Append(sink.file, text);
  if (sink.dropped_lines > 0) {
    if (!own && sink.backlog.size() > sink.resume_bytes) {
      ++sink.dropped_lines;
      return;
    }
    NoteDropped(sink);
  }
  if (!Queue(sink, text, own)) {
    // Resumes only at half of the backlog: else there would be more gaps than lines.
    sink.resume_bytes = sink.backlog.size() / 2;
    ++sink.dropped_lines;
  } else if (sink.backlog.size() >= kConsoleBatchBytes && !sink.full) {
    PumpSink(sink);
  }
}

void Console::NoteDropped(Sink& sink) {
  const std::string note = absl::StrCat(
      "ddprun: ", sink.dropped_lines, sink.dropped_lines == 1 ? " line is" : " lines are",
      " not shown here: the console was too slow (", hint_, ")\n");
  if (Queue(sink, note, /*own=*/true)) sink.dropped_lines = 0;
}

// All or nothing.
bool Console::Queue(Sink& sink, std::string_view text, bool own) const {
  const std::size_t limit = limits_.backlog_bytes + (own ? limits_.reserve_bytes : 0);
  if (sink.backlog.size() + text.size() > limit) return false;
  sink.backlog.Append(text);
  return true;
}

void Console::PumpSink(Sink& sink) {
  sink.full = false;
  while (!sink.closed) {
    std::string_view next = sink.backlog.Front();
    if (next.empty() && sink.dropped_lines > 0) {
      NoteDropped(sink);
      next = sink.backlog.Front();
    }
    if (next.empty()) return;
    if (!sink.nonblocking) {
      if (!CanWriteNow(sink.fd)) break;
      next = next.substr(0, PIPE_BUF);
    }
    const ssize_t written = write(sink.fd, next.data(), next.size());
    if (written > 0) {
      sink.backlog.Pop(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else if (written < 0 && errno == EAGAIN) {
      break;
    } else {
      // The reader is gone: the run continues without a console.
      sink.closed = true;
      sink.backlog.Clear();
      return;
    }
  }
  sink.full = true;
}

void Console::Pump() {
  for (Sink& sink : sinks_) PumpSink(sink);
}

std::size_t Console::PendingBytes() const {
  std::size_t bytes = 0;
  for (const Sink& sink : sinks_) bytes += sink.backlog.size();
  return bytes;
}

int Console::PendingFd(OutputStream stream) const { return SinkOf(stream).PendingFd(); }

void Console::WatchReaders(Poller& poller) {
  for (Sink& sink : sinks_) {
    const int pending = sink.PendingFd();
    if (pending == sink.watched) continue;
    if (sink.watched >= 0) poller.Remove(sink.watched);
    // Tried again before the next wait if it cannot be watched.
    sink.watched = pending >= 0 && poller.Add(pending, {Source::kConsole}, EPOLLOUT) ? pending : -1;
  }
}

void Console::ShowNotices() {
  for (const std::string& notice : files_->TakeNotices())
    WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", notice));
}

void Console::Flush(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
                    int interrupt_fd) {
  FlushStreams(stall_timeout, timeout, interrupt_fd);
  const bool missing = files_->NoteMissing(files_->Flush(stall_timeout, timeout, interrupt_fd));
  ShowNotices();
  // If stderr is a file on another disk.
  if (missing && sinks_.size() > 1 && sinks_.back().file >= 0)
    files_->Flush(kConsoleNoticeTimeout, kConsoleNoticeTimeout);
  // Only these sentences are pending now.
  FlushStreams(stall_timeout, stall_timeout, interrupt_fd);
}

void Console::FlushStreams(std::chrono::milliseconds stall_timeout,
                           std::chrono::milliseconds timeout, int interrupt_fd) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = now() + timeout;
  auto deadline = std::min(now() + stall_timeout, end);
  while (true) {
    const std::size_t before = PendingBytes();
    Pump();
    if (PendingBytes() != before) deadline = std::min(now() + stall_timeout, end);
    pollfd fds[3];
    nfds_t count = 0;
    for (const Sink& sink : sinks_) {
      if (sink.PendingFd() >= 0)
        fds[count++] = pollfd{.fd = sink.PendingFd(), .events = POLLOUT, .revents = 0};
    }
    if (count == 0) return;
    fds[count] = pollfd{.fd = interrupt_fd, .events = POLLIN, .revents = 0};
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
    if (remaining.count() <= 0) return;
    poll(fds, count + 1, static_cast<int>(remaining.count()));
    if (fds[count].revents != 0) return;
  }
}

}  // namespace ddprun
