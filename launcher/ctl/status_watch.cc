// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_command.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/status_text.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// The alternate screen buffer without a cursor, and back.
constexpr char kEnterScreen[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeaveScreen[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseLineEnd[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";

void Put(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string Time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return absl::StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
}

// Reads keys unbuffered and without echo, and restores the screen at the end.
class Terminal {
 public:
  Terminal() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    Put(kEnterScreen);
  }
  ~Terminal() {
    Put(kLeaveScreen);
    if (raw_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool has_keys() const { return raw_; }

  void Draw(const std::vector<std::string>& lines) {
    std::string text = kHome;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      absl::StrAppend(&text, i > 0 ? "\r\n" : "", lines[i], kEraseLineEnd);
    }
    absl::StrAppend(&text, kEraseBelow);
    Put(text);
  }

  static ScreenSize Size() {
    winsize size{};
    ScreenSize found;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
      found = {size.ws_col, size.ws_row};
    }
    return found;
  }

 private:
  termios before_{};
  bool raw_ = false;
};

// Keys and signals.
class UserInput {
 public:
  UserInput() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signals_ = OwnedFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  enum class Action { kNothing, kRedraw, kEnd };

  // kNothing: `until` has passed.
  Action WaitUntil(Clock::time_point until, bool keys) {
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      pollfd fds[] = {{signals_.get(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
      const int ready = poll(fds, 2, static_cast<int>(std::max<std::int64_t>(0, left.count())));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return Action::kNothing;
      signalfd_siginfo info;
      if (fds[0].revents != 0 && read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
        return info.ssi_signo == SIGWINCH ? Action::kRedraw : Action::kEnd;
      }
      char key = 0;
      if (fds[1].revents != 0) {
        const ssize_t count = read(STDIN_FILENO, &key, 1);
        if (count == 1 && (key == 'q' || key == 'Q')) return Action::kEnd;
        if (count == 0) keys = false;
      }
    }
  }

 private:
  OwnedFd signals_;
};

}  // namespace

int WatchStatus(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  UserInput input;
  const std::string service = TargetOf(options.service);
  std::optional<Terminal> terminal;
  if (isatty(STDOUT_FILENO) != 0) terminal.emplace();
  ServiceStatus seen;
  bool reached = false;
  std::string said;
  while (true) {
    const auto next = Clock::now() + options.interval;
    // A key or signal must not wait long for a service that does not answer.
    auto status = GetStatus(channel, options.run_id, std::min(options.timeout, kWatchTimeoutMax));
    const std::string trouble = status.ok() ? "" : std::string(status.status().message());
    reached = reached || status.ok();
    if (status.ok()) seen = *std::move(status);
    if (!terminal.has_value()) {
      const std::string lines =
          trouble.empty() ? absl::StrJoin(StatusLines(seen), absl::StrCat("\n", Time(), " "))
                          : trouble;
      if (lines != said) Put(absl::StrCat(Time(), " ", lines.empty() ? "no run" : lines, "\n"));
      said = lines;
      if (!trouble.empty()) return reached ? 0 : 1;
    }
    UserInput::Action action = UserInput::Action::kRedraw;
    while (action == UserInput::Action::kRedraw) {
      if (terminal.has_value()) {
        terminal->Draw(
            StatusScreen(seen, absl::StrCat("ddpctl status  ", service, "  ", Time(), "  (q ends)"),
                         trouble, Terminal::Size()));
      }
      action = input.WaitUntil(next, terminal.has_value() && terminal->has_keys());
    }
    if (action == UserInput::Action::kEnd) return reached ? 0 : 1;
  }
}

}  // namespace ddprun
