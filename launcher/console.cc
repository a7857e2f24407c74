// SPDX-License-Identifier: Apache-2.0
#include "launcher/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/lifeline_words.h"
#include "launcher/limits.h"

namespace ddprun {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

bool CanWriteNow(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

}  // namespace

Console::Sink Console::OpenSink(int fd) {
  Sink sink;
  sink.fd = fd;
  struct stat info;
  if (fstat(fd, &info) != 0) {
    sink.closed = true;
    return sink;
  }
  if (S_ISREG(info.st_mode)) {
    sink.nonblocking = true;  // a file never waits for a reader
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    // O_NONBLOCK on the inherited descriptor would change it for the shell and everyone else who
    // shares it.
    const std::string path = absl::StrCat("/proc/self/fd/", fd);
    const int own = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) {
      sink.fd = own;
      sink.owned = true;
      sink.nonblocking = true;
    }
  }
  return sink;
}

Console::Console(int out, int err, bool marked)
    : marked_(marked), out_(OpenSink(out)), err_(OpenSink(err)) {
  const bool out_terminal = isatty(out) == 1;
  const bool err_terminal = isatty(err) == 1;
  both_terminals_ = out_terminal && err_terminal;
  if (err_terminal) {
    status_stream_ = &err_;
  } else if (out_terminal) {
    status_stream_ = &out_;
  }
}

Console::~Console() {
  for (Sink* sink : {&out_, &err_}) {
    if (sink->owned) close(sink->fd);
  }
}

void Console::WriteLine(OutputStream stream, std::string_view line, TimePoint now) {
  if (marked_) {
    const std::string text = MarkLine(stream == OutputStream::kErr, {line.data(), line.size()});
    return Append(out_, absl::StrCat(text, "\n"), now);
  }
  Sink& sink = SinkOf(stream);
  const bool redraw = !status_.empty() && (&sink == status_stream_ || both_terminals_);
  std::string text;
  text.reserve(line.size() + 1);
  if (redraw) text += kEraseLine;
  text += line;
  text += '\n';
  Append(sink, text, now);
  if (redraw) Append(*status_stream_, FittingStatus(), now);
}

void Console::WriteWord(std::string_view marked_line, TimePoint now) {
  Append(out_, absl::StrCat(absl::string_view(marked_line.data(), marked_line.size()), "\n"), now);
}

void Console::SetStatus(std::string_view text, TimePoint now) {
  if (status_stream_ == nullptr) return;
  status_ = text;
  // A status is only worth showing now: a terminal that lags behind gets the next one.
  if (status_stream_->PendingBytes() == 0)
    Append(*status_stream_, absl::StrCat(kEraseLine, FittingStatus()), now);
}

void Console::ClearStatus(TimePoint now) {
  if (status_.empty()) return;
  status_.clear();
  Append(*status_stream_, kEraseLine, now);
}

std::string Console::FittingStatus() const {
  winsize size{};
  const int known = ioctl(status_stream_->fd, TIOCGWINSZ, &size);
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

bool Console::IsStalled(const Sink& sink, TimePoint now) const {
  return sink.PendingBytes() > 0 && now - sink.progress_time >= kConsoleStallTimeout;
}

bool Console::IsFull(TimePoint now) const {
  const auto full = [&](const Sink& sink) {
    return sink.PendingBytes() >= kConsoleBufferBytesMax && !IsStalled(sink, now);
  };
  return full(out_) || full(err_);
}

void Console::Append(Sink& sink, std::string_view text, TimePoint now) {
  if (sink.closed) return;
  if (sink.PendingBytes() == 0) sink.progress_time = now;
  if (sink.PendingBytes() >= kConsoleBufferBytesMax && IsStalled(sink, now)) {
    ++sink.dropped_lines;
    return;
  }
  sink.buffer += text;
  PumpSink(sink, now);
}

void Console::PumpSink(Sink& sink, TimePoint now) {
  while (sink.PendingBytes() > 0 && !sink.closed) {
    std::size_t bytes = sink.PendingBytes();
    if (!sink.nonblocking) {
      if (!CanWriteNow(sink.fd)) break;
      bytes = std::min<std::size_t>(bytes, PIPE_BUF);
    }
    const ssize_t written = write(sink.fd, sink.buffer.data() + sink.written, bytes);
    if (written > 0) {
      sink.written += static_cast<std::size_t>(written);
      sink.progress_time = now;
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else if (written < 0 && errno == EAGAIN) {
      break;
    } else {
      // The reader is gone, or the disk is full: the run goes on without a console.
      sink.closed = true;
      sink.buffer.clear();
      sink.written = 0;
      return;
    }
  }
  // What was written is cut off only when it is most of the buffer: each byte is moved at most
  // once.
  if (sink.written * 2 >= sink.buffer.size()) {
    sink.buffer.erase(0, sink.written);
    sink.written = 0;
  }
  if (sink.PendingBytes() == 0 && sink.dropped_lines > 0) {
    const std::uint64_t dropped = std::exchange(sink.dropped_lines, 0);
    Append(sink,
           absl::StrCat("ddprun: ", dropped, " lines are not shown: the console took nothing for ",
                        kConsoleStallTimeout.count(), " s (--log-dir keeps all)\n"),
           now);
  }
}

void Console::Pump(TimePoint now) {
  PumpSink(out_, now);
  PumpSink(err_, now);
}

int Console::PendingFd(OutputStream stream) const {
  const Sink& sink = stream == OutputStream::kOut ? out_ : err_;
  return sink.PendingBytes() == 0 || sink.closed ? -1 : sink.fd;
}

std::optional<TimePoint> Console::NextDeadline(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const Sink* sink : {&out_, &err_}) {
    if (sink->PendingBytes() < kConsoleBufferBytesMax) continue;
    const TimePoint deadline = sink->progress_time + kConsoleStallTimeout;
    if (deadline > now && (!next.has_value() || deadline < *next)) next = deadline;
  }
  return next;
}

void Console::Flush(std::chrono::milliseconds timeout) {
  TimePoint now = std::chrono::steady_clock::now();
  const TimePoint deadline = now + timeout;
  for (Pump(now); now < deadline; Pump(now)) {
    pollfd fds[2];
    nfds_t count = 0;
    for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
      if (PendingFd(stream) >= 0)
        fds[count++] = pollfd{.fd = PendingFd(stream), .events = POLLOUT, .revents = 0};
    }
    if (count == 0) return;
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    poll(fds, count, static_cast<int>(remaining.count()));
    now = std::chrono::steady_clock::now();
  }
}

}  // namespace ddprun
