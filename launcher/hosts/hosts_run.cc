// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_run.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/base/signals.h"
#include "launcher/command_line/scheduler_env.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "launcher/placement/worker_environ.h"
#include "proto/input_file.h"
#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/env_file.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/process/resource_limit.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

OwnedFd OpenSignalFd(const sigset_t& signals) {
  return OwnedFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
}

// Searches PATH as a shell does; a path is returned unchanged.
std::string FindCommand(const std::string& name) {
  if (absl::StrContains(name, '/')) return name;
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return name;
}

}  // namespace

HostsRun::HostsRun(Config config)
    : config_(std::move(config)),
      console_(STDOUT_FILENO, STDERR_FILENO),
      signal_fd_(
          OpenSignalFd(WithChildSignal(Union(config_.end_signals, config_.forwarded_signals)))),
      transports_(config_.head.plan.transports.size()),
      read_buffer_(kPipeReadBytes, '\0') {}

int HostsRun::Run() {
  if (!poller_.Add(signal_fd_.get(), {Source::kSignal}) ||
      !poller_.Add(console_.notice_fd(), {Source::kLogNotice})) {
    console_.WriteLine(OutputStream::kErr,
                       absl::StrCat("ddprun: cannot watch signals: ", ErrnoText(errno)));
    console_.Flush(kConsoleStallTimeout, kConsoleFlushTimeout, -1);
    return 1;
  }
  now_ = Now();
  Feed(HeadBegins{});
  while (!end_.has_value()) {
    console_.WatchReaders(poller_);
    const std::vector<Ready> ready = poller_.Wait(NextHeadDeadline(state_));
    now_ = Now();
    for (const Ready& one : ready) HandleReady(one);
    const std::optional<TimePoint> due = NextHeadDeadline(state_);
    if (due.has_value() && *due <= now_) Feed(HeadDeadlinePassed{});
  }
  Close();
  return end_->exit_code;
}

// An effect may cause an event (a command that cannot be started), which is queued.
void HostsRun::Feed(HeadEvent event) {
  events_.push_back(std::move(event));
  if (feeding_) return;
  feeding_ = true;
  while (!events_.empty()) {
    const HeadEvent next = std::move(events_.front());
    events_.pop_front();
    for (const HeadEffect& effect : StepHead(state_, next, now_, config_.head)) Perform(effect);
  }
  if (state_.phase != HeadPhase::kGathering) config_.token.reset();
  feeding_ = false;
}

void HostsRun::Perform(const HeadEffect& effect) {
  std::visit(
      Overloaded{
          [&](const StartTransport& start) { Start(start); },
          [&](const SendSetup& send) {
            const auto transport = static_cast<std::size_t>(send.transport);
            if (config_.token.has_value()) Send(send.transport, Encode(*config_.token));
            Send(send.transport, Encode(config_.head.plan.transports[transport].setup));
          },
          [&](const SendGo& send) { Send(send.transport, Encode(send.go)); },
          [&](const SendSignal& send) { Send(send.transport, Encode(PassSignal{send.signal})); },
          [&](const CloseControlPipe& close) {
            TransportAt(close.transport).closing = true;
            Pump(close.transport);
          },
          [&](const EndTransport& end) {
            const TransportProcess& process = TransportAt(end.transport);
            if (process.index.has_value() && !processes_.outcome(*process.index).has_value())
              kill(-processes_.pid(*process.index), end.signal);
          },
          [&](const ShowLine& show) { console_.WriteLine(OutputStream::kErr, show.line); },
          [&](const EndHead& end) { end_ = end; }},
      effect);
}

// ---- The processes

absl::Status HostsRun::OpenPipes(TransportProcess& process, SpawnRequest& request,
                                 std::vector<OwnedFd>& child_ends) {
  int fds[3][2];
  for (int i = 0; i < 3; ++i) {
    if (pipe2(fds[i], O_CLOEXEC) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", ErrnoText(errno)));
    }
    const int own = i == 0 ? fds[i][1] : fds[i][0];
    const int other = i == 0 ? fds[i][0] : fds[i][1];
    (i == 0 ? process.in : i == 1 ? process.out : process.err) = OwnedFd(own);
    (i == 0 ? request.in : i == 1 ? request.out : request.err) = other;
    child_ends.emplace_back(other);
    fcntl(own, F_SETFL, O_NONBLOCK);
  }
  return absl::OkStatus();
}

void HostsRun::Start(const StartTransport& start) {
  const int number = start.transport;
  TransportProcess& process = TransportAt(number);
  process = TransportProcess();
  const Transport& transport = config_.head.plan.transports[static_cast<std::size_t>(number)];
  SpawnRequest request;
  request.argv = transport.commands[static_cast<std::size_t>(start.attempt)];
  request.path = FindCommand(request.argv.front());
  request.environ = OwnEnviron();
  request.signal_mask = config_.signal_mask;
  // Not SIGKILL, so that ssh and srun can close their connections. The node reaches the end of its
  // control pipe in any case.
  request.death_signal = SIGTERM;
  std::vector<OwnedFd> child_ends;
  const absl::Status status = OpenPipes(process, request, child_ends);
  if (!status.ok()) {
    return Feed(TransportEnded{number, SpawnFailed{126, std::string(status.message())}});
  }
  process.out_lines = std::make_unique<LineSplitter>(
      LineSplitter::Sink{[this, number](std::string_view line) { OnOutLine(number, line); },
                         [](std::string_view) {}},
      kHostLineBytesMax);
  process.err_lines = std::make_unique<LineSplitter>(
      LineSplitter::Sink{[this, number](std::string_view line) { OnErrLine(number, line); },
                         [](std::string_view) {}},
      kHostLineBytesMax);
  process.index = processes_.size();
  processes_.Spawn(request);
  if (processes_.outcome(*process.index).has_value()) {
    return Feed(TransportEnded{number, *processes_.outcome(*process.index)});
  }
  if (poller_.Add(process.out.get(), {Source::kWorkerOut, number}) &&
      poller_.Add(process.err.get(), {Source::kWorkerErr, number})) {
    return;
  }
  const std::string why = absl::StrCat("it cannot be watched: ", ErrnoText(errno));
  processes_.SignalGroup(*process.index, SIGKILL);
  process = TransportProcess();
  Feed(TransportEnded{number, SpawnFailed{126, why}});
}

void HostsRun::Send(int transport, std::string text) {
  TransportProcess& process = TransportAt(transport);
  if (!process.in.valid() || process.closing) return;
  std::string all;
  all.reserve(process.unsent.size() - process.sent + text.size());
  all.append(process.unsent, process.sent).append(text);
  Wipe(process.unsent);
  Wipe(text);
  process.unsent = std::move(all);
  process.sent = 0;
  Pump(transport);
}

void HostsRun::Pump(int transport) {
  TransportProcess& process = TransportAt(transport);
  while (process.in.valid() && process.sent < process.unsent.size()) {
    char* const next = process.unsent.data() + process.sent;
    const std::size_t left = process.unsent.size() - process.sent;
    const ssize_t count = write(process.in.get(), next, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    // The process is gone and reads nothing more; its end is reported separately.
    const std::size_t taken = count < 0 ? left : static_cast<std::size_t>(count);
    explicit_bzero(next, taken);
    process.sent += taken;
  }
  const bool waits = process.in.valid() && process.sent < process.unsent.size();
  if (waits != process.waits_to_send) {
    process.waits_to_send = waits;
    if (waits) {
      // A pipe that cannot be watched is closed: the transport's end follows.
      if (!poller_.Add(process.in.get(), {Source::kControlPipe, transport}, EPOLLOUT))
        process.in.Reset();
    } else if (process.in.valid()) {
      poller_.Remove(process.in.get());
    }
  }
  if (process.closing && !waits) process.in.Reset();
}

void HostsRun::HandleEnd(int transport) {
  TransportProcess& process = TransportAt(transport);
  if (!process.index.has_value()) return;
  const std::size_t index = *process.index;
  if (!processes_.ReapIfEnded(index)) return;
  for (const OutputStream stream : {OutputStream::kOut, OutputStream::kErr})
    ReadPipe(transport, stream, kPipeDrainBytesMax);
  process.out_lines->Flush();
  process.err_lines->Flush();
  if (process.waits_to_send) poller_.Remove(process.in.get());
  for (OwnedFd* pipe : {&process.out, &process.err}) {
    if (pipe->valid()) poller_.Remove(pipe->get());
  }
  const Outcome outcome = *processes_.outcome(index);
  Wipe(process.unsent);
  process = TransportProcess();
  Feed(TransportEnded{transport, outcome});
}

// ---- The output of the nodes

void HostsRun::ReadPipe(int transport, OutputStream stream, std::size_t bytes_max) {
  TransportProcess& process = TransportAt(transport);
  OwnedFd& pipe = stream == OutputStream::kOut ? process.out : process.err;
  LineSplitter* lines =
      stream == OutputStream::kOut ? process.out_lines.get() : process.err_lines.get();
  while (pipe.valid() && bytes_max > 0) {
    const std::size_t wanted = std::min(bytes_max, read_buffer_.size());
    const ssize_t count = read(pipe.get(), read_buffer_.data(), wanted);
    if (count > 0) {
      lines->Append({read_buffer_.data(), static_cast<std::size_t>(count)});
      bytes_max -= static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      poller_.Remove(pipe.get());
      pipe.Reset();
    }
  }
}

int HostsRun::TakeNode(int transport, absl::string_view& line) const {
  const Transport& plan = config_.head.plan.transports[static_cast<std::size_t>(transport)];
  if (plan.kind == TransportKind::kSrun) {
    const std::optional<int> label = TakeLabel(line);
    if (label.has_value() && *label < static_cast<int>(plan.nodes.size())) return *label;
  }
  return plan.nodes.front();
}

void HostsRun::OnOutLine(int transport, std::string_view line) {
  absl::string_view text(line.data(), line.size());
  const int node = TakeNode(transport, text);
  const auto parsed = ParseLine(text);
  if (const auto* word = std::get_if<NodeMessage>(&parsed)) {
    if (std::holds_alternative<StdinWanted>(*word))
      return SendStdin(stdin_.Want(poller_, transport, node));
    if (std::holds_alternative<RoundBegun>(*word)) return config_.report.Begun();
    Feed(MessageReceived{node, *word});
    if (const auto* serving = std::get_if<Serving>(word)) {
      config_.report.Service(HostPort(ServiceAddress(state_, config_.head), serving->port));
    }
    return;
  }
  const auto* output = std::get_if<OutputLine>(&parsed);
  if (output == nullptr) return;
  const bool is_there = state_.nodes[static_cast<std::size_t>(node)].hello.has_value();
  if (!is_there || (output->is_error && absl::StartsWith(output->text, "ddprun: "))) {
    return Feed(LineReceived{node, std::string(output->text)});
  }
  console_.WriteWorkerLine(output->is_error ? OutputStream::kErr : OutputStream::kOut, "",
                           {output->text.data(), output->text.size()});
}

void HostsRun::SendStdin(const std::optional<HeadStdin::Answer>& answer) {
  if (answer.has_value()) Send(answer->transport, Encode(answer->input));
}

// stderr of the transport: the messages of a running ddprun come on stdout, marked.
void HostsRun::OnErrLine(int transport, std::string_view line) {
  absl::string_view text(line.data(), line.size());
  const int node = TakeNode(transport, text);
  Feed(LineReceived{node, std::string(text)});
}

// ---- The loop

void HostsRun::HandleReady(const Ready& ready) {
  switch (ready.source) {
    case Source::kSignal:
      return HandleSignals();
    case Source::kWorkerOut:
      return ReadPipe(ready.worker, OutputStream::kOut, kPipeReadBytes);
    case Source::kWorkerErr:
      return ReadPipe(ready.worker, OutputStream::kErr, kPipeReadBytes);
    case Source::kControlPipe:
      return Pump(ready.worker);
    case Source::kConsole:
      return console_.Pump();
    case Source::kLogNotice:
      return console_.ShowNotices();
    case Source::kStdin:
      return SendStdin(stdin_.OnReady(poller_));
    case Source::kSession:
    case Source::kWorkerEnd:
    case Source::kWarden:
    case Source::kWorkerProgress:
    case Source::kStacks:
    case Source::kSideCommand:
    case Source::kBackground:
      return;  // an agent's
  }
}

void HostsRun::HandleSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      for (std::size_t i = 0; i < transports_.size(); ++i) HandleEnd(static_cast<int>(i));
    } else {
      Feed(HeadSignaled{.signal = number, .ends = sigismember(&config_.end_signals, number) == 1});
    }
  }
}

void HostsRun::Close() {
  config_.report.Verdict(end_->text, "");
  for (std::size_t i = 0; i < processes_.size(); ++i) processes_.SignalGroup(i, SIGKILL);
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(end_->text, "\n"), '\n')) {
    // A verdict comes from another machine.
    if (!end_->text.empty()) console_.WriteLine(OutputStream::kErr, Printable(line));
  }
  const OwnedFd impatience = OpenSignalFd(Union(config_.end_signals, config_.forwarded_signals));
  console_.Flush(kConsoleStallTimeout, kConsoleFlushTimeout, impatience.get());
}

// ---- `ddprun -H`

namespace {

constexpr int kSshPort = 22;

absl::StatusOr<std::vector<HostEntry>> ReadHostfile(const std::string& path) {
  const absl::StatusOr<InputFile> file = ReadInput(path, kHostfileBytesMax);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("cannot read the hostfile ", path, ": ",
                                                           file.status().message()));
  }
  return ParseHostfile(file->text, absl::StrCat("the hostfile ", path));
}

absl::StatusOr<std::vector<HostEntry>> FindHosts(const Options& options,
                                                 const GetVariable& get_variable) {
  if (options.hosts.srun) return ReadSlurmAllocation(get_variable);
  if (!options.hosts.hostfile.empty()) return ReadHostfile(options.hosts.hostfile);
  return options.hosts.hosts;
}

// The addresses of hosts that are this machine, by the route to another host.
std::vector<std::string> HostAddresses(const HostsPlan& plan) {
  std::vector<std::string> addresses(plan.names.size());
  std::string other;
  for (const Transport& transport : plan.transports) {
    // A node that is reached by ssh reports a better address.
    if (transport.kind == TransportKind::kRsh) {
      other = WithoutUser(plan.names[static_cast<std::size_t>(transport.nodes.front())]);
      break;
    }
  }
  for (const Transport& transport : plan.transports) {
    if (transport.kind != TransportKind::kDirect || other.empty()) continue;
    addresses[static_cast<std::size_t>(transport.nodes.front())] =
        LocalAddressTowards(other, kSshPort).value_or("");
  }
  return addresses;
}

}  // namespace

absl::StatusOr<HostsPlan> PlanHosts(const Options& options, const std::string& own_path,
                                    const GetVariable& get_variable) {
  absl::StatusOr<std::vector<HostEntry>> hosts = FindHosts(options, get_variable);
  if (!hosts.ok()) return hosts.status();
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  // The shell's name of the folder, which may contain links that exist on the other hosts too.
  const std::string shell_folder = get_variable("PWD").value_or("");
  const bool same =
      !shell_folder.empty() && std::filesystem::equivalent(shell_folder, folder, error) && !error;
  return MakeHostsPlan(options, *hosts,
                       {.own_path = own_path,
                        .folder = same ? shell_folder : folder,
                        .run_id = MakeRunId(),
                        .environment = OwnEnviron(),
                        .is_this_machine = IsThisMachine});
}

int RunHosts(const Options& options, const std::string& own_path,
             std::optional<absl::StatusOr<Token>> variable, const GetVariable& get_variable,
             RunReport report) {
  prctl(PR_SET_DUMPABLE, 0);  // this process holds the secret until the nodes have it
  // A dry run does not create a secret.
  HostsRun::Config config;
  config.report = std::move(report);
  if (!options.dry_run) {
    absl::StatusOr<std::optional<Token>> token =
        OpenToken(options.security, std::move(variable), get_variable);
    if (!token.ok()) return Fail(token.status(), kExitUsage);
    config.token = *std::move(token);
  }
  absl::StatusOr<HostsPlan> plan = PlanHosts(options, own_path, get_variable);
  if (!plan.ok()) return Fail(plan.status(), kExitUsage);
  if (options.dry_run) return Show(HostsPlanText(*plan));
  config.head.addresses = HostAddresses(*plan);
  config.head.plan = *std::move(plan);
  config.head.join_timeout = options.join_timeout;
  config.head.term_timeout = options.stopping.shutdown_timeout;
  config.head.stop_signal = StopSignal(options.stopping);
  config.forwarded_signals = NotIgnored(options.stopping.passed_signals());
  config.end_signals =
      WithOtherEndSignals(NotIgnored(options.stopping.end_signals), config.forwarded_signals);
  config.signal_mask = BlockSignals(Union(config.end_signals, config.forwarded_signals));
  HostsRun run(std::move(config));
  // After HostsRun has taken down the limit that the nodes of this machine are started with.
  RaiseFileLimit();
  return run.Run();
}

}  // namespace ddprun
