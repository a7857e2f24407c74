// SPDX-License-Identifier: Apache-2.0
// The agent's own stdout and stderr: whole lines, and one status line on a terminal. The reader may
// be slow or gone; only Flush() waits for it. Streams that are one terminal, pipe or file share one
// queue, so that lines, and the status between them, keep their order.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/limits.h"
#include "launcher/base/output_stream.h"
#include "launcher/base/poller.h"
#include "launcher/output/backlog.h"
#include "launcher/output/log_writer.h"

namespace ddprun {

class Console {
 public:
  // Limits of each queue.
  struct Limits {
    std::size_t backlog_bytes = 0;
    std::size_t reserve_bytes = 0;  // beyond that, for lines that must not be dropped
  };
  static constexpr Limits kLimits{.backlog_bytes = kConsoleBacklogBytesMax,
                                  .reserve_bytes = kConsoleReserveBytes};

  // kMarked: both streams are written to `out`, marked for the head of the run
  // (control_pipe_protocol.h).
  enum class Form { kPlain, kMarked };

  // Does not own `out` and `err`: they stay open and keep their mode, which other processes share.
  Console(int out, int err, const Limits& limits = kLimits, Form form = Form::kPlain);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Writes a line of ddprun itself, which is never dropped. `line` has no line end. Lines keep
  // their order within a stream, and that of both where they are one.
  void WriteLine(OutputStream stream, std::string_view line);
  // Writes a line of a worker. If the backlog is full, the line is dropped and counted; a note with
  // the number takes its place.
  void WriteWorkerLine(OutputStream stream, std::string_view prefix, std::string_view line);

  // True if the last line written to stderr is a worker's and ends with `words`, so that the next
  // line does not have to repeat them.
  bool EndsWith(std::string_view words) const;

  // Writes a message of this node to the head of the run; only if the console is marked.
  void WriteMessage(std::string_view marked_line);

  // Shows `text` as the terminal's last line until the next status or ClearStatus(). Without a
  // terminal it does nothing.
  void SetStatus(std::string_view text);
  void ClearStatus();

  // Where the reader finds dropped lines: "all are in DIR".
  void SetHint(std::string hint) { hint_ = std::move(hint); }

  // If stdout or stderr is a file: readable when its disk rejects a write, which ShowNotices() then
  // reports on stderr.
  int notice_fd() const { return files_->notice_fd(); }
  void ShowNotices();

  // Writes as much as possible without waiting.
  void Pump();
  // The descriptor to wait on for writing; -1: no output is pending.
  int PendingFd(OutputStream stream) const;
  // Call before each wait of the loop: watches a reader while output is pending for it.
  void WatchReaders(Poller& poller);

  // Waits until everything is written, `stall_timeout` has passed without progress, `timeout` has
  // passed in total, or `interrupt_fd` is readable (-1: none). Reports missing bytes of a file on
  // stderr.
  void Flush(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
             int interrupt_fd);

  bool IsTerminal() const { return status_sink_ != nullptr; }
  bool IsTerminal(OutputStream stream) const { return SinkOf(stream).terminal; }

 private:
  struct Sink {
    int fd = -1;
    bool terminal = false;
    int watched = -1;          // the descriptor that the poller watches for writing
    bool owned = false;        // reopened, to be non-blocking for this process alone
    bool nonblocking = false;  // else poll() precedes each small write
    bool closed = false;       // the reader is gone: output is dropped
    bool full = false;         // the reader has accepted nothing since the last Pump()
    int file = -1;             // the number in files_ of a file on a disk, which has no reader
    Backlog backlog{kConsoleBatchBytes};
    std::uint64_t dropped_lines = 0;
    std::size_t resume_bytes = 0;  // no line is accepted before the backlog is smaller

    int PendingFd() const { return backlog.size() == 0 || closed ? -1 : fd; }
  };

  void Open(int fd);
  Sink& SinkOf(OutputStream stream) {
    return stream == OutputStream::kOut ? sinks_.front() : sinks_.back();
  }
  const Sink& SinkOf(OutputStream stream) const {
    return stream == OutputStream::kOut ? sinks_.front() : sinks_.back();
  }
  void Write(OutputStream stream, std::string_view prefix, std::string_view line, bool own);
  void WriteMarked(OutputStream stream, const std::string& line, bool own);
  void Append(Sink& sink, std::string_view text, bool own);
  bool Queue(Sink& sink, std::string_view text, bool own) const;
  void NoteDropped(Sink& sink);
  void PumpSink(Sink& sink);
  std::size_t PendingBytes() const;
  std::string FittingStatus() const;
  void FlushStreams(std::chrono::milliseconds stall_timeout, std::chrono::milliseconds timeout,
                    int interrupt_fd);

  const Limits limits_;
  const Form form_;
  std::shared_ptr<LogWriter> files_;
  std::vector<Sink> sinks_;      // of stdout and stderr, or the one of both
  Sink* status_sink_ = nullptr;  // the one that is a terminal, stderr's preferred
  std::string status_;
  std::string hint_ = "--log-dir keeps all";
  std::string line_;       // kept to reuse its memory
  std::string last_line_;  // the last of stderr; empty if it was ddprun's own
};

}  // namespace ddprun
