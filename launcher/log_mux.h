// SPDX-License-Identifier: Apache-2.0
// What a node's workers say: from their pipes to the console line by line, to files where asked
// for, and the last lines of each kept for the verdict. The agent owns the pipes, so a worker that
// is killed loses nothing it wrote.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "launcher/console.h"
#include "launcher/line_splitter.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {

// The last kLastLinesMax lines, each cut to kLastLineBytesMax.
class LastLines {
 public:
  void Add(std::string_view line);
  std::vector<std::string> Take() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

class LogMux {
 public:
  struct Worker {
    int rank = 0;
    std::string prefix;      // of each line on the console: "[0] " or "[node-a:0] "
    std::string log_folder;  // empty: no files
  };

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

  explicit LogMux(Console& console) : console_(console) {}

  // Forgets the workers of the round before. UNAVAILABLE if pipes or files cannot be made: the
  // message says why.
  absl::Status StartRound(const std::vector<Worker>& workers, std::vector<WriteEnds>& write_ends);

  std::vector<Pipe> OpenPipes() const;

  // Reads once. False: the pipe has ended and is closed.
  bool Read(int worker, OutputStream stream, TimePoint now);

  // Reads what a dead worker left in its pipes, without waiting for those who still hold them.
  void Drain(int worker, TimePoint now);

  // No process of the round is left: reads the rest, hands on unfinished lines and closes the
  // pipes.
  void EndRound(TimePoint now);

  std::vector<std::string> LastLinesOf(int worker) const;

 private:
  struct Channel {
    OwnedFd pipe;
    OwnedFd file;
    bool file_failed = false;
    std::unique_ptr<LineSplitter> splitter;
  };
  struct Source {
    Worker worker;
    Channel out;
    Channel err;
    LastLines last_lines;
  };

  Channel& ChannelOf(int worker, OutputStream stream);
  absl::Status OpenChannel(Source& source, OutputStream stream, OwnedFd& write_end);
  bool ReadInto(Source& source, OutputStream stream, std::size_t bytes_max, TimePoint now);
  void OnLine(Source& source, OutputStream stream, std::string_view line);
  void OnProgress(Source& source, std::string_view segment);
  void WriteFile(Source& source, Channel& channel, std::string_view bytes, TimePoint now);

  Console& console_;
  std::vector<std::unique_ptr<Source>>
      sources_;           // by local rank; their addresses are held by the splitters
  int status_rank_ = -1;  // whose progress the terminal shows: the lowest rank that shows any
  TimePoint now_;         // of the call in progress, for the splitters' callbacks
  std::string read_buffer_;
};

}  // namespace ddprun
