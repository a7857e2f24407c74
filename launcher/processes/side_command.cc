// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/side_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/placement/worker_environ.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

std::string LastLine(const std::string& output) {
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(output);
  const std::size_t end = text.rfind('\n');
  return Printable(std::string(text.substr(end == absl::string_view::npos ? 0 : end + 1)));
}

// A pipe that holds all of it; empty: /dev/null.
OwnedFd InputOf(const std::string& input) {
  int pipe[2];
  if (input.empty() || pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return OwnedFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  OwnedFd reader(pipe[0]);
  const OwnedFd writer(pipe[1]);
  fcntl(reader.get(), F_SETFL, 0);
  [[maybe_unused]] const ssize_t count = write(writer.get(), input.data(), input.size());
  return reader;
}

}  // namespace

std::string WhyFailed(const SideCommand::Result& result, std::chrono::milliseconds timeout,
                      absl::string_view limit) {
  std::string text;
  if (!result.outcome.has_value()) {
    text = absl::StrCat("did not end within ", std::chrono::duration<double>(timeout).count(),
                        " s (", limit, ")");
  } else {
    text = std::visit(
        Overloaded{
            [](const Exited& exited) { return absl::StrCat("exited with code ", exited.code); },
            [](const Signaled& signaled) {
              return absl::StrCat("was killed by ", SignalName(signaled.signal));
            },
            [](const SpawnFailed& failed) {
              return absl::StrCat("could not be started: ", failed.message);
            }},
        *result.outcome);
  }
  const std::string line = LastLine(result.output);
  return line.empty() ? text : absl::StrCat(text, ": ", line);
}

void SideCommand::Begin(const std::string& command, const sigset_t& signal_mask, Poller& poller,
                        TimePoint now, const std::string& input) {
  last_.clear();
  deadline_ = now + timeout_;
  // One that hangs in the kernel is not joined by others, and this one has failed, too.
  if (processes_.IsLive(0)) return;
  int pipe[2] = {-1, -1};
  [[maybe_unused]] const int made = pipe2(pipe, O_CLOEXEC);
  output_ = OwnedFd(pipe[0]);
  const OwnedFd writer(pipe[1]);
  const OwnedFd in = InputOf(input);
  if (output_.get() >= 0) fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  // Without a descriptor for it the output is lost, and the exit code decides all the same.
  if (!poller.Add(output_.get(), {Source::kSideCommand})) output_.Reset();
  SpawnRequest request{.path = "/bin/sh",
                       .argv = {"sh", "-c", command},
                       .environ = OwnEnviron(),
                       .in = in.get(),
                       .out = writer.get(),
                       .err = writer.get(),
                       .cpus = {},
                       .memory_nodes = {},
                       .signal_mask = signal_mask};
  processes_.Adopt(0, SpawnProcess(request, processes_.file_limit()));
}

void SideCommand::Read(Poller& poller) {
  char bytes[4096];
  while (output_.get() >= 0) {
    const ssize_t count = read(output_.get(), bytes, sizeof(bytes));
    if (count == 0) CloseOutput(poller);
    if (count <= 0) return;
    last_.append(bytes, static_cast<std::size_t>(count));
    if (last_.size() > kSideOutputBytes) last_.erase(0, last_.size() - kSideOutputBytes);
  }
}

void SideCommand::CloseOutput(Poller& poller) {
  if (output_.get() >= 0) poller.Remove(output_.get());
  output_.Reset();
}

std::optional<SideCommand::Result> SideCommand::OnTurn(Poller& poller, TimePoint now) {
  if (pid() != 0) processes_.ReapIfEnded(0);
  Read(poller);
  if (!deadline_.has_value()) return std::nullopt;
  const bool ended = pid() == 0;
  if (!ended && *deadline_ > now) return std::nullopt;
  deadline_.reset();
  CloseOutput(poller);
  if (ended) return Result{processes_.outcome(0), last_};
  processes_.SignalGroup(0, SIGKILL);
  return Result{std::nullopt, last_};
}

}  // namespace ddprun
