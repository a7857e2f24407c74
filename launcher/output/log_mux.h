// SPDX-License-Identifier: Apache-2.0
// The output of a node's workers: from their pipes to the console line by line, to files where
// requested; the last lines of each are kept for the verdict. The agent owns the pipes, so a killed
// worker loses nothing that it wrote. They are read independently of console and disk, so a worker
// never waits for either.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "launcher/output/console.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/log_feed.h"
#include "launcher/output/log_plan.h"
#include "launcher/output/log_writer.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class LogMux {
 public:
  // A pipe to be read: the agent waits for it and calls Read().
  struct Pipe {
    int fd = -1;
    int worker = 0;
    OutputStream stream = OutputStream::kOut;
  };

  // What the worker writes to. Closed by the agent once the worker runs.
  struct WriteEnds {
    OwnedFd out;
    OwnedFd err;
  };

  LogMux(Console& console, LogFold fold);

  // Forgets the workers of the round before, and has failure records removed that an earlier run
  // has left in its folders. UNAVAILABLE, with the reason, if pipes cannot be made. The files
  // are opened meanwhile: Opened().
  absl::Status StartRound(const LogPlan& plan, std::vector<WriteEnds>& write_ends);

  // OK once all files of the round are open; UNAVAILABLE: one cannot be. Absent: not known yet;
  // notice_fd() becomes readable.
  std::optional<absl::Status> Opened();
  // Goes on without waiting for the files' disk any longer; what is written to them waits for it.
  absl::Status GoOnUnopened();

  // Leaves a worker's failure record beside its log files, if it has any.
  void KeepRecord(int worker, std::string_view record);

  std::vector<Pipe> OpenPipes() const;

  // Reads once. False: the pipe has ended and is closed.
  bool Read(int worker, OutputStream stream, TimePoint now);

  // Reads what a dead worker left in its pipes, without waiting for other processes that hold them.
  void Drain(int worker, TimePoint now);

  // No process of the round is left: reads the rest, hands on unfinished lines and closes the
  // pipes.
  void EndRound(TimePoint now);

  std::vector<std::string> LastLinesOf(int worker) const { return feed_.LastLinesOf(worker); }

  // For subscribers of the service to the output of the workers.
  LogFeed& feed() { return feed_; }

  // Lines that wait for equal ones of other workers: until when, and showing them.
  std::optional<TimePoint> NextDeadline() const;
  void OnDeadline(TimePoint now);
  void ShowAll();

  // Readable when there is a notice about the files, or Opened() may have a result.
  int notice_fd() const { return writer_->notice_fd(); }
  void ShowNotices();
  std::function<void(const std::string&)> NoticeSink() const { return writer_->NoticeSink(); }

  // The run is over: waits until the files have everything, but not for a disk that does not work,
  // nor longer than `interrupt_fd` is not readable (-1: nothing interrupts).
  void FinishFiles(int interrupt_fd = -1);

 private:
  struct Channel {
    OwnedFd pipe;
    int file = -1;  // the writer's number
    std::unique_ptr<LineSplitter> splitter;
  };
  struct Source {
    int index = 0;
    WorkerPlan plan;
    Channel out;
    Channel err;
    int record = -1;  // the writer's number of error.json
  };
  struct Filter {
    std::vector<std::string> texts;
    int file = -1;
  };

  Channel& ChannelOf(int worker, OutputStream stream);
  int AddFile(const std::string& path, const LogRotation& rotation);
  absl::Status OpenChannel(Source& source, OutputStream stream, OwnedFd& write_end);
  void StartFolding(const LogPlan& plan);
  void CloseFiles();
  bool ReadInto(Source& source, OutputStream stream, std::size_t bytes_max, TimePoint now);
  void EndWorker(const Source& source, TimePoint now);
  void OnLine(Source& source, OutputStream stream, std::string_view line);
  void OnProgress(Source& source, OutputStream stream, std::string_view segment);
  bool Folds(OutputStream stream) const;
  void Show(const LineFolder::Groups& groups);

  Console& console_;
  const LogFold fold_;
  std::shared_ptr<LogWriter> writer_;
  LineFolder folder_;
  LogFeed feed_;
  bool folding_ = false;  // there are several workers, and a stream whose lines are folded
  std::string fold_prefix_;
  Filter out_filter_;
  Filter err_filter_;
  std::vector<std::unique_ptr<Source>>
      sources_;           // by local rank; their addresses are held by the splitters
  int status_rank_ = -1;  // whose progress the terminal shows: the lowest rank that shows any
  TimePoint now_;         // of the call in progress, for the splitters' callbacks
  std::string read_buffer_;
};

}  // namespace ddprun
