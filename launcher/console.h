// SPDX-License-Identifier: Apache-2.0
// The agent's own stdout and stderr: whole lines, one status line on a terminal, and a reader that
// may be slow or gone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/session_types.h"

namespace ddprun {

enum class OutputStream { kOut, kErr };

class Console {
 public:
  // Takes over nothing: `out` and `err` stay open and keep their mode, which they share with other
  // processes.
  // `marked`: both streams go to `out`, for the head of the run, which parts them again
  // (lifeline_words.h).
  Console(int out, int err, bool marked = false);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // `line` has no line end. Lines keep their order within a stream.
  void WriteLine(OutputStream stream, std::string_view line, TimePoint now);

  // A word of this node's to the head of the run. Only where the console is marked.
  void WriteWord(std::string_view marked_line, TimePoint now);

  // Shows `text` as the terminal's last line until the next status or until it is cleared;
  // elsewhere does nothing.
  void SetStatus(std::string_view text, TimePoint now);
  void ClearStatus(TimePoint now);

  // Writes what can be written without waiting.
  void Pump(TimePoint now);

  // More than kConsoleBufferBytesMax waits, and the reader still moves: the caller should take no
  // more in for now.
  bool IsFull(TimePoint now) const;

  // File descriptors to wait on for writing; -1: nothing waits.
  int PendingFd(OutputStream stream) const;
  // When a stalled reader is given up on, if something waits.
  std::optional<TimePoint> NextDeadline(TimePoint now) const;

  // Waits for the reader, but not longer than `timeout`.
  void Flush(std::chrono::milliseconds timeout);

  bool IsTerminal() const { return status_stream_ != nullptr; }

 private:
  struct Sink {
    int fd = -1;
    bool owned = false;        // opened anew, to be non-blocking for this process alone
    bool nonblocking = false;  // else: asked with poll() before each small write
    bool closed = false;       // the reader is gone: what comes is dropped
    std::string buffer;        // from `written` on it waits
    std::size_t written = 0;
    TimePoint progress_time;  // when the reader last took something
    std::uint64_t dropped_lines = 0;

    std::size_t PendingBytes() const { return buffer.size() - written; }
  };

  static Sink OpenSink(int fd);
  Sink& SinkOf(OutputStream stream) { return stream == OutputStream::kOut ? out_ : err_; }
  bool IsStalled(const Sink& sink, TimePoint now) const;
  void Append(Sink& sink, std::string_view text, TimePoint now);
  void PumpSink(Sink& sink, TimePoint now);
  std::string FittingStatus() const;

  const bool marked_;
  Sink out_;
  Sink err_;
  Sink* status_stream_ = nullptr;  // the one that is a terminal, stderr first
  bool both_terminals_ = false;
  std::string status_;
};

}  // namespace ddprun
