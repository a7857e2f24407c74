// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/runs/attach_stream.h"
#include "launcher/runs/output_record.h"
#include "launcher/runs/run_folder.h"
#include "proto/output_file.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// How far the run's user has been shown it, from any terminal. A file that cannot be written is no
// reason to show nothing.
class ShownFile {
 public:
  explicit ShownFile(const std::string& folder) : path_(folder + "/shown") {}

  OutputPlace Read() const {
    return ParseOutputPlace(ReadSmallFile(path_)).value_or(OutputPlace());
  }
  void Write(const OutputPlace& place) {
    if (!file_.valid())
      file_ = OwnedFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    const std::string line = ToLine(place);
    [[maybe_unused]] const ssize_t count = pwrite(file_.get(), line.data(), line.size(), 0);
  }

 private:
  const std::string path_;
  OwnedFd file_;
};

// What the reader says on stdin: the last whole line counts.
class Lines {
 public:
  // Absent: nothing has come until then.
  std::optional<OutputPlace> Await(std::chrono::milliseconds timeout) {
    pollfd fd{STDIN_FILENO, POLLIN, 0};
    if (poll(&fd, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count == 0 || (count < 0 && errno != EINTR)) ended_ = true;
    if (count <= 0) return std::nullopt;
    text_.append(bytes, static_cast<std::size_t>(count));
    std::optional<OutputPlace> last;
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      if (const auto place = ParseOutputPlace(text_.substr(0, end))) last = place;
      text_.erase(0, end + 1);
    }
    if (text_.size() > ToLine(OutputPlace()).size()) ended_ = true;  // no line of attach
    return last;
  }
  bool ended() const { return ended_; }

 private:
  std::string text_;
  bool ended_ = false;
};

bool Send(FrameKind kind, absl::string_view bytes) {
  const std::string frame = EncodeFrame(kind, bytes);
  return WriteAll(STDOUT_FILENO, frame.data(), frame.size()) == 0;
}

class AttachServer {
 public:
  AttachServer(std::string folder, const OutputPlace& begin)
      : folder_(std::move(folder)), reader_(folder_, begin.position), shown_(folder_) {
    // What a connection that broke has shown is told by the next one.
    if (begin.position > shown_.Read().position) shown_.Write(begin);
  }

  // Until the run has ended and its reader has taken that, or has gone.
  int Serve(Lines& lines) {
    while (!lines.ended()) {
      // First, so that what the recorder wrote before it went is sent.
      const bool live = IsLive(folder_);
      const absl::StatusOr<bool> sent = SendNew();
      if (!sent.ok()) return CtlFailed(sent.status());
      if (!*sent) return 0;
      if (!live) return SendEnd(lines);
      if (Now() >= alive_due_ && !SendAndNote(FrameKind::kAlive, "")) return 0;
      if (const auto place = lines.Await(kRunFollowInterval)) shown_.Write(*place);
    }
    return 0;
  }

 private:
  bool SendAndNote(FrameKind kind, absl::string_view bytes) {
    alive_due_ = Now() + kAttachAliveInterval;
    return Send(kind, bytes);
  }

  // False: nobody takes it.
  absl::StatusOr<bool> SendNew() {
    while (true) {
      const auto frame = reader_.Next();
      if (!frame.ok()) return frame.status();
      if (!frame->has_value()) return true;
      if (!SendAndNote((*frame)->kind, (*frame)->bytes)) return false;
    }
  }

  int SendEnd(Lines& lines) {
    const absl::StatusOr<KnownRun> run = ReadRun(folder_);
    if (!run.ok()) return CtlFailed(run.status());
    Send(FrameKind::kRecord, ToJson(run->record));
    const TimePoint deadline = Now() + kAttachLastWait;
    while (!lines.ended() && Now() < deadline) {
      if (const auto place = lines.Await(kRunFollowInterval)) shown_.Write(*place);
    }
    return 0;
  }

  const std::string folder_;
  OutputReader reader_;
  ShownFile shown_;
  TimePoint alive_due_ = Now() + kAttachAliveInterval;
};

}  // namespace

int ServeAttach(const CtlOptions& options) {
  const absl::StatusOr<std::string> runs_folder = RunsFolder(ReadVariable);
  if (!runs_folder.ok()) return CtlFailed(runs_folder.status());
  const auto run = FindRun(*runs_folder, options.run_id, RunChoice::kAny);
  if (!run.ok()) return CtlFailed(run.status());
  const std::string folder = FolderOf(*runs_folder, run->record.name);
  Send(FrameKind::kRecord, ToJson(run->record));
  Send(FrameKind::kPlace, ToLine(ShownFile(folder).Read()));
  Lines lines;
  std::optional<OutputPlace> begin;
  const TimePoint deadline = Now() + kAttachSilenceMax;
  while (!begin.has_value() && !lines.ended() && Now() < deadline)
    begin = lines.Await(kAttachAliveInterval);
  if (!begin.has_value()) return kExitFailure;
  return AttachServer(folder, *begin).Serve(lines);
}

}  // namespace ddprun
