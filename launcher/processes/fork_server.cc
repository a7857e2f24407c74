// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/collectives/collective_watch.h"
#include "proto/output_file.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {

extern const char* const kForkServerSource;  // the text of fork_server.py

namespace {

using Clock = std::chrono::steady_clock;

// Its value is read and removed by fork_server.py.
constexpr char kServerVariable[] = "DDPRUN_FORK_SERVER";
constexpr absl::string_view kReady = "ready";
constexpr absl::string_view kPidPrefix = "pid ";

// Waits until one is ready; -1 is none of them. False: the deadline has passed.
bool WaitFor(absl::Span<pollfd> fds, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int timeout =
        deadline == Clock::time_point::max() ? -1 : static_cast<int>(std::max<long>(0, left));
    const int count = poll(fds.data(), fds.size(), timeout);
    if (count > 0) return true;
    if (count == 0 && timeout >= 0) return false;
  }
}

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot ", what, ": ", ErrnoText(errno)));
}

struct SocketPair {
  OwnedFd own;
  OwnedFd other;
};

// Keeps the bounds of messages.
absl::StatusOr<SocketPair> MakeSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return SystemError("make a pair of sockets");
  return SocketPair{OwnedFd(fds[0]), OwnedFd(fds[1])};
}

// In a file in memory: the environment may be larger than a message of a socket.
absl::StatusOr<OwnedFd> ToMemoryFile(const std::string& text) {
  OwnedFd file(memfd_create("ddprun-fork-request", MFD_CLOEXEC));
  if (!file.valid() ||
      pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return SystemError("make a file in memory");
  return file;
}

// Never waits: the server takes each request as soon as it can.
bool SendDescriptors(int socket, const std::vector<int>& fds) {
  char byte = '\n';
  iovec data{.iov_base = &byte, .iov_len = 1};
  const std::size_t size = sizeof(int) * fds.size();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 8)> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), fds.data(), size);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// "" at the end of the connection.
std::string Receive(int socket) {
  std::array<char, kForkReplyBytesMax> bytes;
  const ssize_t count = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : "";
}

std::vector<std::string> ServerEnviron(const ForkServerPlan& plan) {
  std::vector<std::string> environment = plan.environ;
  PrependPythonPath(plan.folder, environment);
  environment.push_back(
      absl::StrCat(kServerVariable, "=check ", getpid(), " ", absl::StrJoin(plan.modules, ",")));
  return environment;
}

}  // namespace

std::string EncodeForkRequest(const SpawnRequest& request,
                              const std::optional<MemoryPolicy>& memory) {
  std::string text;
  const auto add = [&text](const char* kind, absl::string_view item) {
    absl::StrAppend(&text, kind, item);
    text.push_back('\0');
  };
  for (const std::string& argument : request.argv) add("a", argument);
  for (const std::string& variable : request.environ) add("e", variable);
  if (!request.cpus.empty()) add("c", absl::StrJoin(request.cpus, ","));
  if (memory.has_value()) {
    add("m", absl::StrCat(memory->system_call, ",", memory->policy, ",", memory->bits, ",",
                          absl::StrJoin(memory->mask, ",")));
  }
  return text;
}

// OMP_NUM_THREADS is the only variable that ddprun gives to workers and that is read when a library
// is loaded; with --numa-binding it may differ from worker to worker.
bool ReadsTheSame(const std::vector<std::string>& server_environ,
                  const std::vector<std::string>& worker_environ) {
  const auto threads = [](const std::vector<std::string>& environment) {
    const auto found = std::find_if(
        environment.begin(), environment.end(),
        [](const std::string& entry) { return absl::StartsWith(entry, "OMP_NUM_THREADS="); });
    return found == environment.end() ? std::string() : *found;
  };
  return threads(server_environ) == threads(worker_environ);
}

// ---- On other threads

std::shared_ptr<ForkServerProcess> ForkServerProcess::Start(ForkServerPlan plan,
                                                            std::function<void()> wake) {
  std::shared_ptr<ForkServerProcess> process(
      new ForkServerProcess(std::move(plan), std::move(wake)));
  const std::error_code error = RunDetached([process] { process->Run(); });
  if (error) {
    process->Fail(absl::UnavailableError(absl::StrCat("cannot start a thread: ", error.message())));
  }
  return process;
}

bool ForkServerProcess::IsLoading() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return phase_ == Phase::kLoading;
}

ForkServerMatch ForkServerProcess::Matches(pid_t pid) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!pid_.has_value()) return ForkServerMatch::kUnknown;
  return *pid_ == pid ? ForkServerMatch::kYes : ForkServerMatch::kNo;
}

std::vector<std::string> ForkServerProcess::TakeOutput() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(lines_, {});
}

std::optional<ForkServerFailure> ForkServerProcess::TakeFailure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failure_, std::nullopt);
}

void ForkServerProcess::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  phase_ = Phase::kFailed;
  if (pid_.value_or(0) > 0) kill(*pid_, SIGKILL);
  changed_.notify_all();
}

// The first reason counts. A process that ended by itself while it imported its modules, or was too
// slow, has found something of the modules; the others were prevented.
void ForkServerProcess::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ == Phase::kFailed) return;
  const bool of_modules = absl::IsFailedPrecondition(status) || absl::IsDeadlineExceeded(status);
  failure_ = ForkServerFailure{.sentence = std::string(status.message()),
                               .was_ready = phase_ == Phase::kReady,
                               .is_final = phase_ == Phase::kLoading && of_modules};
  phase_ = Phase::kFailed;
  if (pid_.value_or(0) > 0) kill(*pid_, SIGKILL);
  changed_.notify_all();
  wake_();
}

absl::Status ForkServerProcess::TooLate() const {
  const double seconds = std::chrono::duration<double>(plan_.import_timeout).count();
  return absl::DeadlineExceededError(
      absl::StrCat("has not imported its modules in time (", seconds, " s)"));
}

// To import the modules takes a worker as long as it takes the server, so waiting costs nothing.
bool ForkServerProcess::WaitUntilReady(const std::function<bool()>& is_cancelled) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (phase_ == Phase::kLoading) {
    changed_.wait_for(lock, kSweepInterval);
    lock.unlock();
    const bool cancelled = is_cancelled();
    // Its own thread may wait for a disk.
    if (Clock::now() >= deadline_) Fail(TooLate());
    lock.lock();
    if (cancelled) return false;
  }
  return phase_ == Phase::kReady;
}

std::optional<Spawned> ForkServerProcess::Fork(const SpawnRequest& request,
                                               const std::function<bool()>& is_cancelled) {
  if (!WaitUntilReady(is_cancelled) || !ReadsTheSame(plan_.environ, request.environ))
    return std::nullopt;
  absl::StatusOr<Spawned> spawned = Ask(request);
  if (spawned.ok()) return *std::move(spawned);
  if (is_cancelled()) return std::nullopt;  // the worker may have been killed for that reason
  // If the server has died, its own thread says how.
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kForkServerEndTimeout, [this, &spawned] {
      return phase_ == Phase::kFailed || !absl::IsUnavailable(spawned.status());
    });
  }
  Fail(absl::Status(spawned.status().code(),
                    absl::StrCat("did not start a worker: ", spawned.status().message())));
  return std::nullopt;
}

// UNAVAILABLE: the server, or the worker, has ended.
absl::StatusOr<Spawned> ForkServerProcess::Ask(const SpawnRequest& request) {
  const CpuBinding binding(request.cpus, request.memory_nodes);
  const std::string text = EncodeForkRequest(request, binding.memory_policy());
  absl::StatusOr<OwnedFd> file = ToMemoryFile(text);
  if (!file.ok()) return file.status();
  absl::StatusOr<SocketPair> channel = MakeSocketPair();
  if (!channel.ok()) return channel.status();
  std::vector<int> fds = {channel->other.get(), file->get(),
                          request.in < 0 ? STDIN_FILENO : request.in, request.out, request.err};
  if (request.cgroup >= 0) fds.push_back(request.cgroup);
  if (!SendDescriptors(socket_.get(), fds)) {
    if (errno == EPIPE) return absl::UnavailableError("the process ended");
    return SystemError("send the request");
  }
  channel->other.Reset();  // so that the channel ends with the worker
  pollfd ready{.fd = channel->own.get(), .events = POLLIN, .revents = 0};
  if (!WaitFor(absl::MakeSpan(&ready, 1), Clock::now() + kForkTimeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("it has not answered for ", kForkTimeout.count(), " s"));
  }
  const std::string reply = Receive(channel->own.get());
  if (reply.empty()) return absl::UnavailableError("the process ended");
  int pid = 0;
  absl::string_view number = reply;
  if (!absl::ConsumePrefix(&number, kPidPrefix) || !absl::SimpleAtoi(number, &pid))
    return absl::InternalError(Printable(reply));
  Spawned worker;
  worker.pid = pid;
  worker.pidfd = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)));
  if (!worker.pidfd.valid()) return SystemError("watch the worker");
  // Without this byte the worker ends: it must not run if this process has given it up.
  send(channel->own.get(), "\n", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return worker;
}

// ---- On the server's own thread

void ForkServerProcess::Run() {
  absl::Status status = StartProcess();
  if (status.ok()) status = Load();
  if (status.ok()) {
    SetReady();
    status = WaitForEnd();
  }
  Fail(status);
  if (process_.pid <= 0) return;
  pollfd ended{.fd = process_.pidfd.get(), .events = POLLIN, .revents = 0};
  WaitFor(absl::MakeSpan(&ended, 1), Clock::time_point::max());  // Fail() has killed it
  const std::lock_guard<std::mutex> lock(mutex_);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process_.pid), &info, WEXITED);
  pid_ = 0;
}

absl::Status ForkServerProcess::StartProcess() {
  if (mkdir(plan_.folder.c_str(), S_IRWXU) != 0) return SystemError("make its folder");
  const absl::Status written =
      WriteWholeFile(absl::StrCat(plan_.folder, "/", kSitecustomize), kForkServerSource);
  if (!written.ok()) return written;
  absl::StatusOr<SocketPair> sockets = MakeSocketPair();
  if (!sockets.ok()) return sockets.status();
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return SystemError("make a pipe");
  output_ = OwnedFd(pipe_fds[0]);
  const OwnedFd output_end(pipe_fds[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  SpawnRequest request{.path = plan_.program.path,
                       .argv = {plan_.program.argv.front(), "-u", "-c", ""},
                       .environ = ServerEnviron(plan_),
                       .in = -1,
                       .out = sockets->other.get(),
                       .err = output_end.get(),
                       .cpus = {},
                       .memory_nodes = {},
                       .signal_mask = plan_.signal_mask};
  // Behind its own "-u".
  request.argv.insert(request.argv.end(), plan_.program.argv.begin() + 2, plan_.program.argv.end());
  SetPid(std::nullopt);
  Spawned process = SpawnProcess(request, plan_.file_limit);
  if (process.outcome.has_value()) {
    SetPid(0);
    return absl::UnavailableError(std::get<SpawnFailed>(*process.outcome).message);
  }
  if (!process.pidfd.valid()) {
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    SetPid(0);
    return absl::FailedPreconditionError(
        "needs the system call pidfd_open, which this kernel (before Linux 5.3) or this container "
        "refuses");
  }
  process_ = std::move(process);
  socket_ = std::move(sockets->own);
  SetPid(process_.pid);
  return absl::OkStatus();
}

// Stop() and Fail() have not killed one that they did not know of.
void ForkServerProcess::SetPid(std::optional<pid_t> pid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pid_ = pid;
  if (pid_.value_or(0) > 0 && phase_ == Phase::kFailed) kill(*pid_, SIGKILL);
}

absl::Status ForkServerProcess::Load() {
  pollfd fds[] = {{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                  {.fd = output_.get(), .events = POLLIN, .revents = 0},
                  {.fd = process_.pidfd.get(), .events = POLLIN, .revents = 0}};
  while (WaitFor(absl::MakeSpan(fds), deadline_)) {
    ReadOutput();
    if (fds[0].revents != 0) {
      if (Receive(socket_.get()) == kReady) return absl::OkStatus();
      fds[0].fd = -1;  // it is ending
    }
    if ((fds[1].revents & POLLHUP) != 0) fds[1].fd = -1;
    if (fds[2].revents != 0) return DescribeEnd();
  }
  return TooLate();
}

void ForkServerProcess::SetReady() {
  std::vector<std::string> lines = absl::StrSplit(text_, '\n', absl::SkipEmpty());
  if (lines.size() > kShownLinesMax) lines.erase(lines.begin(), lines.end() - kShownLinesMax);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ == Phase::kLoading) phase_ = Phase::kReady;
  lines_ = std::move(lines);
  changed_.notify_all();
  if (!lines_.empty()) wake_();
}

absl::Status ForkServerProcess::WaitForEnd() {
  pollfd fds[] = {{.fd = process_.pidfd.get(), .events = POLLIN, .revents = 0},
                  {.fd = output_.get(), .events = POLLIN, .revents = 0}};
  while (WaitFor(absl::MakeSpan(fds), Clock::time_point::max()) && fds[0].revents == 0) {
    ReadOutput();
    if ((fds[1].revents & POLLHUP) != 0) fds[1].fd = -1;
  }
  return DescribeEnd();
}

// Describes a process that has ended and is not reaped. FAILED_PRECONDITION: it ended by itself.
absl::Status ForkServerProcess::DescribeEnd() const {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process_.pid), &info, WEXITED | WNOWAIT);
  if (info.si_code != CLD_EXITED) {
    return absl::UnavailableError(absl::StrCat("was killed by signal ", info.si_status, " (",
                                               SignalName(info.si_status), ")"));
  }
  const std::string line = LastLine();
  if (!line.empty()) return absl::FailedPreconditionError(absl::StrCat("ended: ", line));
  std::string text = absl::StrCat("ended with exit code ", info.si_status);
  if (info.si_status == 0) {
    absl::StrAppend(&text, ": ", plan_.program.path,
                    " imports no sitecustomize from PYTHONPATH, or a module has ended it");
  }
  return absl::FailedPreconditionError(text);
}

void ForkServerProcess::ReadOutput() {
  std::array<char, 4096> bytes;
  ssize_t count = 0;
  while ((count = read(output_.get(), bytes.data(), bytes.size())) > 0)
    text_.append(bytes.data(), static_cast<std::size_t>(count));
  if (text_.size() > kPreloadOutputBytesMax) text_.erase(0, text_.size() - kPreloadOutputBytesMax);
}

std::string ForkServerProcess::LastLine() const {
  const std::vector<absl::string_view> lines = absl::StrSplit(text_, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : Printable(absl::StripAsciiWhitespace(lines.back()));
}

// ---- One process after another

std::shared_ptr<ForkServer> ForkServer::Start(ForkServerPlan plan, std::function<void()> wake) {
  std::shared_ptr<ForkServer> server(new ForkServer(std::move(plan), std::move(wake)));
  server->StartProcess();
  return server;
}

void ForkServer::StartProcess() {
  ForkServerPlan plan = plan_;
  absl::StrAppend(&plan.folder, "_", ++started_);
  process_ = ForkServerProcess::Start(std::move(plan), wake_);
}

bool ForkServer::IsLoading() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return awaited_ && process_->IsLoading();
}

ForkServerMatch ForkServer::Matches(pid_t pid) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return process_->Matches(pid);
}

void ForkServer::BeginRound() {
  const std::lock_guard<std::mutex> lock(mutex_);
  awaited_ = true;
  if (std::exchange(start_at_round_, false)) StartProcess();
}

std::optional<Spawned> ForkServer::Fork(const SpawnRequest& request,
                                        const std::function<bool()>& is_cancelled) {
  std::shared_ptr<ForkServerProcess> process;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!awaited_ && process_->IsLoading()) return std::nullopt;
    process = process_;
  }
  std::optional<Spawned> spawned = process->Fork(request, is_cancelled);
  if (spawned.has_value()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_ = 0;
  }
  return spawned;
}

std::vector<std::string> ForkServer::TakeNotes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> notes;
  if (!printed_) {  // the next process prints the same
    for (const std::string& line : process_->TakeOutput())
      notes.push_back(absl::StrCat("[preload] ", line));
    printed_ = !notes.empty();
  }
  const std::optional<ForkServerFailure> failure = process_->TakeFailure();
  if (failure.has_value() && !stopped_) notes.push_back(OnFailure(*failure));
  return notes;
}

// One that was not even ready is not started again at once: what prevented it may last.
std::string ForkServer::OnFailure(const ForkServerFailure& failure) {
  const std::string text =
      absl::StrCat("ddprun: the fork server of --preload ", absl::StrJoin(plan_.modules, ","), " ",
                   failure.sentence, "; workers start without it");
  if (failure.is_final) return text;
  if (++failures_ >= kForkServerFailuresMax)
    return absl::StrCat(text, " from now on: it has failed ", failures_, " times in a row");
  awaited_ = false;
  start_at_round_ = !failure.was_ready;
  if (failure.was_ready) StartProcess();
  return absl::StrCat(text, " until another one is ready");
}

void ForkServer::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  start_at_round_ = false;
  process_->Stop();
}

}  // namespace ddprun
