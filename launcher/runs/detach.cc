// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/detach.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/runs/login_session.h"
#include "launcher/runs/output_record.h"
#include "launcher/runs/recorder.h"
#include "launcher/runs/run_folder.h"
#include "proto/output_file.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

void Put(int fd, absl::string_view text) { WriteAll(fd, text.data(), text.size()); }

// ---- In the process that the user started

// What the run and its recorder say until the first round: on stderr, since stdout is for the name.
class Starter {
 public:
  Starter(OwnedFd pipe, std::string runs_folder)
      : pipe_(std::move(pipe)), runs_folder_(std::move(runs_folder)) {}

  int Wait() {
    const TimePoint deadline = Now() + kRunFolderTimeout;
    while (true) {
      pollfd fd{pipe_.get(), POLLIN, 0};
      poll(&fd, 1, static_cast<int>(kRunFollowInterval.count()));
      const bool ended = (fd.revents != 0) && !Read();
      ShowOutput();
      if (begun_) return ShowName();
      if (record_.has_value() && record_->ending.has_value()) return ShowEnding(*record_->ending);
      if (ended) return record_.has_value() ? Complain("its recorder has ended before it") : 1;
      if (!record_.has_value() && Now() >= deadline)
        return Complain(absl::StrCat("the disk of ", runs_folder_, " does not answer"));
    }
  }

 private:
  // False: the recorder has ended, or has said all.
  bool Read() {
    char bytes[4096];
    const ssize_t count = read(pipe_.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return true;
    if (count > 0) frames_.Add({bytes, static_cast<std::size_t>(count)});
    for (auto frame = frames_.Next(); frame.ok() && frame->has_value(); frame = frames_.Next()) {
      if ((*frame)->kind == FrameKind::kBegun) begun_ = true;
      if ((*frame)->kind == FrameKind::kErr) Put(STDERR_FILENO, (*frame)->bytes);
      if ((*frame)->kind != FrameKind::kRecord) continue;
      absl::StatusOr<RunRecord> record = ParseRunRecord((*frame)->bytes);
      if (!record.ok()) continue;
      record_ = *std::move(record);
      if (!output_.has_value()) output_.emplace(FolderOf(runs_folder_, record_->name), 0);
    }
    return count > 0;
  }

  void ShowOutput() {
    while (output_.has_value()) {
      const auto frame = output_->Next();
      if (!frame.ok() || !frame->has_value()) return;
      if (!IsOutput((*frame)->kind)) continue;
      Put(STDERR_FILENO, (*frame)->bytes);
      shown_any_ = true;
    }
  }

  // The run has said itself why it did not begin, unless it never started.
  int ShowEnding(const RunEnding& ending) const {
    if (!shown_any_ && !ending.words.empty()) std::fprintf(stderr, "%s\n", ending.words.c_str());
    return ending.exit_code;
  }

  int ShowName() const {
    std::fprintf(stderr,
                 "ddprun: the run goes on in the background; ddpctl attach shows it, ddpctl stop "
                 "ends it\n");
    return Show(record_->name + "\n");
  }

  static int Complain(absl::string_view reason) {
    return Fail(absl::UnavailableError(absl::StrCat("the run was not started: ", reason)), 1);
  }

  const OwnedFd pipe_;
  const std::string runs_folder_;
  FrameParser frames_;
  std::optional<RunRecord> record_;
  std::optional<OutputReader> output_;
  bool begun_ = false;
  bool shown_any_ = false;
};

// ---- In the recorder

void SayToStarter(const OwnedFd& starter, FrameKind kind, absl::string_view text) {
  Put(starter.get(), EncodeFrame(kind, text));
}

void LeaveTerminal() {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (null > STDERR_FILENO) close(null);
}

// Leaves the run's secret, where it has one, to commands of this user, and `token` to the run.
absl::Status KeepSecret(const RunFolder& folder, const Options& options, RunRecord& record,
                        std::optional<absl::StatusOr<Token>>& token) {
  if (!UsesNetwork(options) && !options.hosts.asked()) return absl::OkStatus();
  absl::StatusOr<std::optional<Token>> secret =
      OpenToken(options.security, std::move(token), ReadVariable);
  token.reset();
  if (!secret.ok()) return secret.status();
  record.security = options.security;
  if (!secret->has_value()) return absl::OkStatus();
  if (absl::Status status = folder.WriteToken(**secret); !status.ok()) return status;
  record.security.token_file = TokenPath(folder.path());
  token.emplace(**std::move(secret));
  return absl::OkStatus();
}

std::variant<int, RunReport> Record(RunRecord record, Options& options, OwnedFd starter,
                                    const std::string& runs_folder,
                                    std::optional<absl::StatusOr<Token>>& token) {
  prctl(PR_SET_DUMPABLE, 0);  // this process may hold the secret until the run has it
  LeaveTerminal();
  record.pid = getpid();
  absl::StatusOr<RunFolder> folder = RunFolder::Make(runs_folder, record.name);
  absl::Status status = folder.status();
  if (status.ok()) status = KeepSecret(*folder, options, record, token);
  if (status.ok()) status = folder->Write(record);
  if (!status.ok()) {
    if (folder.ok()) folder->Remove();
    SayToStarter(starter, FrameKind::kErr, absl::StrCat("ddprun: ", status.message(), "\n"));
    return 1;
  }
  SayToStarter(starter, FrameKind::kRecord, ToJson(record));
  const std::string note = OutliveLogin(record.name, ReadVariable);
  if (!note.empty()) SayToStarter(starter, FrameKind::kErr, absl::StrCat("ddprun: ", note, "\n"));
  const bool names_itself = options.run_id.empty() && (options.nodes == 1 || options.hosts.asked());
  if (names_itself) options.run_id = record.name;
  Recorder recorder(*std::move(folder), std::move(record), std::move(starter));
  return recorder.Run([&token] { token.reset(); });
}

}  // namespace

std::variant<int, RunReport> Detach(Options& options, const std::vector<std::string>& arguments,
                                    std::optional<absl::StatusOr<Token>>& token) {
  const absl::StatusOr<std::string> runs_folder = RunsFolder(ReadVariable);
  if (!runs_folder.ok()) return Fail(runs_folder.status(), kExitUsage);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot make a pipe: ", ErrnoText(errno))), 1);
  }
  OwnedFd ours(fds[0]);
  OwnedFd theirs(fds[1]);
  std::error_code error;
  RunRecord record;
  record.name = MakeRunId();
  record.run_id = options.run_id;
  record.command = arguments;
  record.working_folder = std::filesystem::current_path(error).string();
  record.host = HostName();
  record.started_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const pid_t recorder = fork();
  if (recorder < 0) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot start a process: ", ErrnoText(errno),
                                                    "; see `ulimit -u`")),
                1);
  }
  if (recorder == 0) {
    ours.Reset();
    return Record(std::move(record), options, std::move(theirs), *runs_folder, token);
  }
  theirs.Reset();
  token.reset();
  signal(SIGHUP, SIG_IGN);  // the end of the terminal; Ctrl-C gives the run up
  return Starter(std::move(ours), *runs_folder).Wait();
}

}  // namespace ddprun
