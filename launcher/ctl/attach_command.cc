// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/node/remote_shell.h"
#include "launcher/runs/attach_stream.h"
#include "proto/text.h"
#include "rendezvous/base/backoff.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/own_program.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;

volatile std::sig_atomic_t left = 0;

TimePoint Now() { return std::chrono::steady_clock::now(); }

int UntilMs(TimePoint when) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(when - Now());
  return static_cast<int>(std::max<std::int64_t>(0, rest.count()));
}

// Ctrl-C and the end of the terminal leave the run. Writes are interrupted, not restarted.
void LeaveOnSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { left = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void Say(absl::string_view sentence) {
  std::fprintf(stderr, "ddpctl: %s\n", std::string(sentence).c_str());
}

// Returns how many of them were written: not all, if the user has left or the reader is gone.
std::size_t Put(int fd, absl::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size() && left == 0) {
    const ssize_t count = write(fd, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (count < 0) break;
    written += static_cast<std::size_t>(count);
  }
  return written;
}

// The words of a process that serves the run, here or on `host`. There it is the program of the
// same path, else the one that PATH has.
std::vector<std::string> ServerCommand(const CtlOptions& options, const std::string& run) {
  const std::string own = OwnProgram().string();
  if (options.host.empty()) return {own, "attach", "--serve", run};
  const std::string words = absl::StrCat(" attach --serve ", ShellQuote(run));
  const std::string script =
      absl::StrCat("if [ -x ", ShellQuote(own), " ]; then exec ", ShellQuote(own), words,
                   "; else exec ddpctl", words, "; fi");
  std::vector<std::string> argv = RemoteShellTo(options.host, options.rsh).argv;
  argv.push_back(absl::StrCat("exec sh -c ", ShellQuote(script)));
  return argv;
}

// A process in a session of its own, so that Ctrl-C is this process's alone.
class ServerProcess {
 public:
  ServerProcess() = default;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() { End(); }

  absl::Status Start(std::vector<std::string> words, bool shows_errors) {
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC) != 0) return absl::UnavailableError(ErrnoText(errno));
    OwnedFd its_in(in[0]);
    in_ = OwnedFd(in[1]);
    if (pipe2(out, O_CLOEXEC) != 0) return absl::UnavailableError(ErrnoText(errno));
    out_ = OwnedFd(out[0]);
    OwnedFd its_out(out[1]);
    fcntl(in_.get(), F_SETFL, O_NONBLOCK);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, its_in.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, its_out.get(), STDOUT_FILENO);
    if (!shows_errors)
      posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return absl::OkStatus();
    pid_ = 0;
    return absl::UnavailableError(
        absl::StrCat("cannot execute ", words[0], ": ", ErrnoText(error)));
  }

  const OwnedFd& out() const { return out_; }
  // Short lines, which a pipe takes whole or not at all: a later one says more.
  void Send(const std::string& line) {
    [[maybe_unused]] const ssize_t count = write(in_.get(), line.data(), line.size());
  }
  // After its last line: it may take that before it ends.
  void Finish() {
    in_.Reset();
    const TimePoint deadline = Now() + kAttachLastWait;
    pollfd fd{out_.get(), POLLIN, 0};
    char bytes[4096];
    while (poll(&fd, 1, UntilMs(deadline)) > 0 && read(out_.get(), bytes, sizeof bytes) > 0) {
    }
    End();
  }
  void End() {
    if (pid_ == 0) return;
    in_.Reset();
    out_.Reset();
    kill(pid_, SIGTERM);
    // ssh ends at once; one that does not is of no use to anyone.
    for (int tries = 0; waitpid(pid_, nullptr, WNOHANG) == 0; ++tries) {
      if (tries == 50) kill(pid_, SIGKILL);
      poll(nullptr, 0, 10);
    }
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  OwnedFd in_;
  OwnedFd out_;
};

class Attachment {
 public:
  explicit Attachment(const CtlOptions& options) : options_(options), stream_(options.whole) {}

  int Run() {
    while (left == 0) {
      if (const std::optional<int> code = Connect()) return *code;
      const absl::StatusOr<bool> goes_on = Follow();
      if (!goes_on.ok()) return CtlFailed(goes_on.status());
      if (stream_.ended()) return ShowEnd();
      if (!*goes_on) break;
      // One that has never said anything has said why on stderr.
      if (!heard_) return kExitFailure;
      server_.End();
      if (!std::exchange(said_lost_, true)) {
        Say(absl::StrCat("the connection to ", options_.host.empty() ? "the run" : options_.host,
                         " is lost; trying again (Ctrl-C leaves)"));
      }
      if (left == 0) poll(nullptr, 0, static_cast<int>(backoff_.Next(kAttachRetryMax).count()));
    }
    return Leave();
  }

 private:
  // Present: there is nothing to connect to.
  std::optional<int> Connect() {
    const bool first = !stream_.record().has_value();
    const std::string run = first ? options_.run_id : stream_.record()->name;
    stream_.Begin();
    const absl::Status started = server_.Start(ServerCommand(options_, run), first);
    return started.ok() ? std::nullopt : std::optional(CtlFailed(started));
  }

  // Shows what comes until the connection or the run ends. False: nobody takes it, or the user has
  // left.
  absl::StatusOr<bool> Follow() {
    std::string bytes(kReadBytes, '\0');
    while (left == 0) {
      pollfd fd{server_.out().get(), POLLIN, 0};
      const int ready =
          poll(&fd, 1, static_cast<int>(std::chrono::milliseconds(kAttachSilenceMax).count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return true;
      const ssize_t count = read(server_.out().get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return true;
      heard_ = true;
      stream_.Add({bytes.data(), static_cast<std::size_t>(count)});
      const absl::StatusOr<bool> taken = ShowNew();
      if (!taken.ok() || !*taken || stream_.ended()) return taken;
    }
    return false;
  }

  absl::StatusOr<bool> ShowNew() {
    const OutputPlace before = stream_.place();
    bool taken = true;
    while (taken) {
      const auto frame = stream_.Next();
      if (!frame.ok()) return frame.status();
      if (const auto begin = stream_.TakeLine()) Greet(*begin);
      if (!frame->has_value()) break;
      const auto& [kind, bytes] = **frame;
      if (kind == FrameKind::kGap) {
        Say(absl::StrCat("... ", bytes, " bytes of output are not kept any more ..."));
        continue;
      }
      const std::size_t shown = Put(kind == FrameKind::kOut ? STDOUT_FILENO : STDERR_FILENO, bytes);
      stream_.Shown(shown);
      taken = shown == bytes.size();
    }
    if (stream_.place() != before) server_.Send(ToLine(stream_.place()));
    return taken;
  }

  // The server has said what it has.
  void Greet(const std::string& begin) {
    server_.Send(begin);
    backoff_.Reset();
    if (std::exchange(said_lost_, false)) Say("connected again");
    if (!std::exchange(greeted_, true) && isatty(STDERR_FILENO) == 1 &&
        !stream_.record()->ending.has_value())
      Say(absl::StrCat("run ", stream_.record()->name, "; Ctrl-C leaves it, and it goes on"));
  }

  int ShowEnd() {
    server_.Finish();
    const KnownRun run{*stream_.record(), false};
    Say(absl::StrCat("run ", run.record.name, " has ended: ", StateText(run)));
    return run.record.ending.has_value() ? run.record.ending->exit_code : kExitFailure;
  }

  int Leave() {
    server_.Finish();
    if (left == 0) return kExitFailure;  // the reader of the output is gone
    if (isatty(STDERR_FILENO) == 1 && stream_.record().has_value()) {
      Say(absl::StrCat("left run ", stream_.record()->name,
                       ", which goes on; ddpctl attach shows it again"));
    }
    return 0;
  }

  const CtlOptions& options_;
  AttachStream stream_;
  ServerProcess server_;
  Backoff backoff_;
  bool greeted_ = false;
  bool heard_ = false;
  bool said_lost_ = false;
};

}  // namespace

int Attach(const CtlOptions& options) {
  LeaveOnSignals();
  return Attachment(options).Run();
}

}  // namespace ddprun
