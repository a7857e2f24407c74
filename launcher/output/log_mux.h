// SPDX-License-Identifier: Apache-2.0
// Reads the output of a node's workers from pipes and passes it on: line by line to the console,
// and to files if requested. Keeps the last lines of each worker for the verdict. The agent owns
// the pipes, so the output of a killed worker is not lost. Reading does not depend on console or
// disk, so a worker never waits for either.
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
#include "launcher/output/line_stamp.h"
#include "launcher/output/log_feed.h"
#include "launcher/output/log_plan.h"
#include "launcher/output/log_writer.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class LogMux {
 public:
  // A pipe to read: when it is ready, the agent calls Read().
  struct Pipe {
    int fd = -1;
    int worker = 0;
    OutputStream stream = OutputStream::kOut;
  };

  // The worker's ends of the pipes. The agent closes them once the worker runs.
  struct WriteEnds {
    OwnedFd out;
    OwnedFd err;
  };

  LogMux(Console& console, LogFold fold, LogTime time = LogTime::kOff);

  // Discards the workers of the previous round but those of which `kept` is true, by local rank:
  // they keep their pipes, and files that they have. Removes failure records of an earlier run from
  // the log folders. UNAVAILABLE: a pipe cannot be created. Files are opened in the background: see
  // Opened().
  absl::Status StartRound(const LogPlan& plan, const std::vector<bool>& kept,
                          std::vector<WriteEnds>& write_ends);

  // A worker without a rank gets this number, which is none of a rank's. Its lines are shown with
  // this prefix. UNAVAILABLE as above.
  absl::Status StartParked(int worker, const std::string& prefix, WriteEnds& ends);

  // The numbers of two workers change places.
  void Swap(int a, int b);

  // OK once all files of the round are open; UNAVAILABLE: one cannot be opened. Absent: not known
  // yet; notice_fd() becomes readable then.
  std::optional<absl::Status> Opened();
  // Continues without waiting for the files' disk; output is queued for it.
  absl::Status GoOnUnopened();

  // The unfinished lines of this rank, such as prompts, are shown before those of others: its stdin
  // is typed here. -1: of none.
  void SetPromptRank(int rank) { prompt_rank_ = rank; }

  // Writes a worker's failure record beside its log files, if any.
  void KeepRecord(int worker, std::string_view record);

  std::vector<Pipe> OpenPipes(int worker) const;

  // Reads once. False: the pipe has ended and is closed.
  bool Read(int worker, OutputStream stream, TimePoint now);

  // Reads the rest of a dead worker's pipes, without waiting for other processes that hold them.
  void Drain(int worker, TimePoint now);

  // Call when no process of the round is left but the workers of which `kept` is true: reads the
  // rest, passes on unfinished lines and closes the pipes of the others.
  void EndRound(const std::vector<bool>& kept, TimePoint now);

  // The output for subscribers of the service, and the last lines of each worker.
  LogFeed& feed() { return feed_; }

  // Lines that wait for equal lines of other workers, and unfinished ones: their deadline, and
  // functions that show them.
  std::optional<TimePoint> NextDeadline() const;
  void OnDeadline(TimePoint now);
  void ShowAll();

  // Readable when there are notices about the files, or Opened() may have a result.
  int notice_fd() const { return writer_->notice_fd(); }
  void ShowNotices();
  std::function<void(const std::string&)> NoticeSink() const { return writer_->NoticeSink(); }

  // At the end of the run: waits until everything is written, the disk stalls, or `interrupt_fd` is
  // readable (-1: none).
  void FinishFiles(int interrupt_fd = -1);

 private:
  struct Channel {
    OwnedFd pipe;
    int file = -1;  // the writer's number
    std::unique_ptr<LineSplitter> splitter;
    TimePoint line_begun;  // of the unfinished line, if any
    bool changed = false;  // since that was shown
  };
  struct Source {
    int index = 0;
    WorkerPlan plan;
    Channel out;
    Channel err;
    int record = -1;  // the writer's number of error.json

    Channel& Of(OutputStream stream) { return stream == OutputStream::kOut ? out : err; }
    const Channel& Of(OutputStream stream) const {
      return stream == OutputStream::kOut ? out : err;
    }
  };
  struct Filter {
    std::vector<std::string> texts;
    int file = -1;
  };

  int AddFile(const std::string& path, const LogRotation& rotation);
  absl::Status OpenChannels(Source& source, WriteEnds& ends);
  absl::Status OpenChannel(Source& source, OutputStream stream, OwnedFd& write_end);
  void StartFolding(const LogPlan& plan);
  void CloseFiles(Source& source);
  void CloseFiles();
  bool ReadInto(Source& source, OutputStream stream, std::size_t bytes_max, TimePoint now);
  void EndWorker(const Source& source, TimePoint now);
  void OnLine(Source& source, OutputStream stream, std::string_view line);
  void Pass(const Source& source, OutputStream stream, std::string_view line);
  void OnProgress(Source& source, OutputStream stream, std::string_view segment);
  void AwaitEnd(Source& source, OutputStream stream, TimePoint now);
  void LookLater(TimePoint now);
  TimePoint::duration LookDelay() const;
  void EraseStatus(TimePoint now);
  void ShowUnfinished(TimePoint now);
  bool HasNews(const Source& source, OutputStream stream) const;
  int OrderOf(int rank) const { return rank == prompt_rank_ ? -1 : rank; }
  bool Folds(OutputStream stream) const;
  void Show(const LineFolder::Groups& groups);
  void ShowLine(OutputStream stream, const std::string& prefix, std::string_view line,
                TimePoint time);

  Console& console_;
  const LogFold fold_;
  LineStamp stamp_;
  std::shared_ptr<LogWriter> writer_;
  LineFolder folder_;
  LogFeed feed_;
  bool folding_ = false;  // there are several workers and a folded stream
  std::string fold_prefix_;
  Filter out_filter_;
  Filter err_filter_;
  std::vector<std::unique_ptr<Source>>
      sources_;           // by local rank, then parked ones; the splitters hold their addresses
  int status_rank_ = -1;  // the rank whose unfinished line the terminal shows; -1: none
  int prompt_rank_ = -1;
  std::optional<TimePoint> unfinished_due_;  // to look for unfinished lines
  TimePoint now_;  // the time of the current call, for the splitters' callbacks
  std::string read_buffer_;
};

}  // namespace ddprun
