// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/stdin_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"

namespace ddprun {

bool SaysForeground(absl::string_view stat) {
  // Behind the name, which may have spaces and brackets: state, parent, group, session, terminal,
  // the terminal's foreground group.
  const std::size_t end = stat.rfind(')');
  if (end == absl::string_view::npos) return true;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(end + 1), ' ', absl::SkipEmpty());
  int group = 0;
  int foreground = 0;
  if (fields.size() < 6 || !absl::SimpleAtoi(fields[2], &group) ||
      !absl::SimpleAtoi(fields[5], &foreground)) {
    return true;
  }
  return foreground <= 0 || group == foreground;
}

StdinPump::StdinPump(const WorkerStdin& worker_stdin, pid_t warden, int terminal)
    : worker_stdin_(worker_stdin), warden_(warden) {
  if (worker_stdin.to != WorkerStdin::To::kRank || isatty(terminal) != 1) return;
  const std::string path = absl::StrCat("/proc/self/fd/", terminal);
  OwnedFd own(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // Without it the rank has the terminal itself.
  if (own.valid() && OpenPipe()) terminal_ = std::move(own);
}

StdinPump::StdinPump(const WorkerStdin& worker_stdin, std::function<void()> ask_head)
    : worker_stdin_(worker_stdin), ask_head_(std::move(ask_head)) {
  if (worker_stdin.to == WorkerStdin::To::kRank) OpenPipe();
}

bool StdinPump::OpenPipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  worker_end_ = OwnedFd(fds[0]);
  pipe_ = OwnedFd(fds[1]);
  fcntl(fds[1], F_SETFL, O_NONBLOCK);  // the worker's end stays blocking
  return true;
}

void StdinPump::BeginRound(int rank_first, int local_world_size) {
  const bool was_here = here_;
  here_ = worker_stdin_.rank >= rank_first && worker_stdin_.rank < rank_first + local_world_size;
  // Meanwhile the head may have answered another node instead.
  if (here_ && !was_here) asked_ = false;
}

void StdinPump::OnReady() { ready_ = true; }

void StdinPump::OnTurn(Poller& poller, TimePoint now) {
  if (!pipe_.valid()) return;
  if (retry_.has_value() && *retry_ <= now) retry_.reset();
  if (std::exchange(ready_, false)) {
    if (!pending_.empty()) {
      Write();
    } else if (here_ && SaysForeground(ReadSmallFile(absl::StrCat("/proc/", warden_, "/stat")))) {
      Read();
    } else {
      // What is typed is the shell's. Nothing tells of the change to the foreground.
      retry_ = now + kStdinRetryInterval;
    }
  }
  if (!pending_.empty()) {
    Watch(poller, pipe_.get(), EPOLLOUT);
  } else if (ended_) {
    Watch(poller, -1, 0);
    terminal_.Reset();
    pipe_.Reset();  // the rank finds the end
  } else if (ask_head_) {
    Watch(poller, -1, 0);
    AskHead();
  } else {
    Watch(poller, here_ && !retry_.has_value() ? terminal_.get() : -1, EPOLLIN);
  }
}

void StdinPump::Read() {
  std::array<char, kStdinReadBytes> bytes;
  const ssize_t count = read(terminal_.get(), bytes.data(), bytes.size());
  if (count > 0) {
    pending_.assign(bytes.data(), static_cast<std::size_t>(count));
    Write();
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    ended_ = true;
  }
}

void StdinPump::AskHead() {
  if (!here_ || std::exchange(asked_, true)) return;
  ask_head_();
}

void StdinPump::Receive(const std::string& bytes, bool end) {
  if (!pipe_.valid()) return;
  asked_ = false;
  ended_ = end;
  pending_ += bytes;
  Write();
}

// Never SIGPIPE: the reading end stays open here.
void StdinPump::Write() {
  const ssize_t count = write(pipe_.get(), pending_.data(), pending_.size());
  if (count > 0) pending_.erase(0, static_cast<std::size_t>(count));
}

void StdinPump::Watch(Poller& poller, int fd, std::uint32_t events) {
  if (fd == watched_) return;
  if (watched_ >= 0) poller.Remove(watched_);
  // Tried again in the next turn if it cannot be watched.
  watched_ = fd >= 0 && poller.Add(fd, {Source::kStdin}, events) ? fd : -1;
}

}  // namespace ddprun
