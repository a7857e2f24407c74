// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/recorder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/output_file.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;

TimePoint Now() { return std::chrono::steady_clock::now(); }

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2})
    sigaddset(&signals, number);
  return signals;
}

std::string LastLine(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  const std::size_t end = text.rfind('\n');
  return std::string(end == absl::string_view::npos ? text : text.substr(end + 1));
}

}  // namespace

Recorder::Recorder(RunFolder folder, RunRecord record, OwnedFd starter)
    : folder_(std::move(folder)),
      record_(std::move(record)),
      starter_(std::move(starter)),
      output_(folder_.path()),
      events_(folder_.path(), "events"),
      samples_(folder_.path(), "samples"),
      steps_(folder_.path(), "steps") {}

bool Recorder::Open(Pipe& pipe) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  pipe = {OwnedFd(fds[0]), OwnedFd(fds[1])};
  fcntl(pipe.ours.get(), F_SETFL, O_NONBLOCK);
  return true;
}

std::variant<int, RunReport> Recorder::Run(const std::function<void()>& forget) {
  const pid_t recorder = getpid();
  const sigset_t handled = HandledSignals();
  sigset_t mask;
  sigprocmask(SIG_BLOCK, &handled, &mask);
  signals_ = OwnedFd(signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  const bool open = signals_.valid() && Open(out_) && Open(err_) && Open(report_);
  run_ = open ? fork() : -1;
  if (run_ == 0) return BecomeRun(recorder, mask);
  if (run_ < 0) {
    verdict_ = absl::StrCat("ddprun: cannot start the run: ", ErrnoText(errno));
    wait_status_ = W_EXITCODE(1, 0);
  }
  forget();
  for (Pipe* pipe : {&out_, &err_, &report_}) pipe->theirs.Reset();
  Loop();
  Finish();
  return 0;
}

RunReport Recorder::BecomeRun(pid_t recorder, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != recorder) _exit(1);
  dup2(out_.theirs.get(), STDOUT_FILENO);
  dup2(err_.theirs.get(), STDERR_FILENO);
  RunReport report(std::move(report_.theirs));
  for (Pipe* pipe : {&out_, &err_, &report_}) *pipe = {};
  folder_.LeaveLock();
  starter_.Reset();
  signals_.Reset();
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  return report;
}

void Recorder::Loop() {
  std::optional<TimePoint> deadline;  // once the run has ended
  while (true) {
    if (wait_status_.has_value() && Drained()) return;
    if (wait_status_.has_value() && !deadline.has_value()) deadline = Now() + kRunLastWriteTimeout;
    if (deadline.has_value() && Now() >= *deadline) return;
    const bool retries = output_.pending() || deadline.has_value();
    Turn(retries ? static_cast<int>(kRunWriteRetryInterval.count()) : -1);
  }
}

void Recorder::Turn(int timeout_ms) {
  // What has no descriptor any more is -1, and not polled.
  const bool reads = !output_.pending();
  pollfd fds[] = {{signals_.get(), POLLIN, 0},
                  {report_.ours.get(), POLLIN, 0},
                  {reads ? out_.ours.get() : -1, POLLIN, 0},
                  {reads ? err_.ours.get() : -1, POLLIN, 0},
                  {starter_.get(), 0, 0}};
  poll(fds, std::size(fds), timeout_ms);
  HandleSignals();
  ReadReport();
  if (output_.pending()) WriteOutput();
  for (const auto& [pipe, kind] : {std::pair{&out_, FrameKind::kOut}, {&err_, FrameKind::kErr}}) {
    if (!output_.pending() && pipe->ours.valid() && !ReadOutput(pipe->ours, kind) &&
        errno != EAGAIN)
      pipe->ours.Reset();
  }
  if (starter_.valid() && fds[4].revents != 0) {
    starter_.Reset();
    if (!record_.begun && run_ > 0) kill(run_, SIGTERM);
  }
}

void Recorder::HandleSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    // The end of a terminal is none of a detached run's.
    if (number != SIGCHLD && number != SIGHUP && run_ > 0) kill(run_, number);
  }
  int status = 0;
  if (run_ > 0 && waitpid(run_, &status, WNOHANG) == run_) {
    wait_status_ = status;
    run_ = -1;
  }
}

void Recorder::ReadReport() {
  char bytes[4096];
  ssize_t count = 0;
  while (report_.ours.valid() && (count = read(report_.ours.get(), bytes, sizeof bytes)) > 0)
    reports_.Add({bytes, static_cast<std::size_t>(count)});
  if (count == 0) report_.ours.Reset();
  bool changed = false;
  for (auto frame = reports_.Next(); frame.ok() && frame->has_value(); frame = reports_.Next()) {
    switch ((*frame)->kind) {
      case FrameKind::kVerdict:
        verdict_ = std::move((*frame)->bytes);
        break;
      case FrameKind::kVerdictJson:
        verdict_json_ += (*frame)->bytes;
        break;
      case FrameKind::kEvent:
        events_.Append((*frame)->bytes);
        break;
      case FrameKind::kSample:
        samples_.Append((*frame)->bytes);
        break;
      case FrameKind::kStep:
        step_lines_ += (*frame)->bytes;
        if (step_lines_.back() == '\n') steps_.Append(std::exchange(step_lines_, {}));
        break;
      case FrameKind::kService:
        record_.service = std::move((*frame)->bytes);
        changed = true;
        break;
      case FrameKind::kBegun:
        record_.begun = true;
        changed = true;
        break;
      default:
        break;
    }
  }
  if (!changed) return;
  Save();
  if (record_.begun) Tell(FrameKind::kBegun, "");
}

// False: nothing was there, or it has ended; see errno.
bool Recorder::ReadOutput(const OwnedFd& pipe, FrameKind kind) {
  std::string bytes(kReadBytes, '\0');
  errno = 0;
  const ssize_t count = read(pipe.get(), bytes.data(), bytes.size());
  if (count <= 0) return false;
  bytes.resize(static_cast<std::size_t>(count));
  output_.Add(kind, bytes);
  WriteOutput();
  if (kind == FrameKind::kErr && !record_.begun) last_error_ = std::move(bytes);
  return true;
}

void Recorder::WriteOutput() {
  const absl::Status status = output_.Write();
  refusal_ = std::string(status.message());
}

// Processes that are none of the run's may hold the pipes open: what is in them now is all.
bool Recorder::Drained() {
  if (output_.pending()) return false;
  const bool out = out_.ours.valid() && ReadOutput(out_.ours, FrameKind::kOut);
  if (output_.pending()) return false;
  const bool err = err_.ours.valid() && ReadOutput(err_.ours, FrameKind::kErr);
  return !out && !err && !output_.pending();
}

// A record that a full disk rejects is written again with the next change.
void Recorder::Save() { folder_.Write(record_).IgnoreError(); }

void Recorder::Tell(FrameKind kind, const std::string& bytes) {
  if (!starter_.valid()) return;
  const std::string frame = EncodeFrame(kind, bytes);
  const HeldBackSignal no_reader(SIGPIPE);
  WriteAll(starter_.get(), frame.data(), frame.size());
  starter_.Reset();
}

void Recorder::Finish() {
  ReadReport();
  const int status = *wait_status_;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // What is refused before a round has no verdict, and says why in one line.
  if (verdict_.empty() && code != 0 && !record_.begun) verdict_ = LastLine(last_error_);
  if (output_.pending() && !refusal_.empty()) {
    absl::StrAppend(&verdict_, verdict_.empty() ? "" : "\n",
                    "its last output could not be recorded: ", refusal_);
  }
  record_.ending = RunEnding{std::time(nullptr), code, std::move(verdict_)};
  record_.service.clear();
  folder_.RemoveToken();
  // Before the record of the end, after which commands look for it, and before the reserve is given
  // back, which is the record's.
  if (!verdict_json_.empty()) WriteVerdict(folder_.path(), verdict_json_).IgnoreError();
  folder_.FreeReserve();
  const TimePoint deadline = Now() + kRunLastWriteTimeout;
  while (!folder_.Write(record_).ok() && Now() < deadline)
    poll(nullptr, 0, static_cast<int>(kRunWriteRetryInterval.count()));
  Tell(FrameKind::kRecord, ToJson(record_));
}

}  // namespace ddprun
