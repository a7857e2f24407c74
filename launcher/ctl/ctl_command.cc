// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_command.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/ctl/status_text.h"
#include "launcher/node/network.h"
#include "launcher/runs/run_folder.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/own_program.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/process/standard_streams.h"
#include "rendezvous/process/thread_check.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kEndingLookInterval{20};

using TokenVariable = decltype(TakeTokenVariable());

int Fail(const std::string& program, const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), PrintableLines(status.message()).c_str());
  return exit_code;
}

// The service accepts only its own user and root; likewise its answers are trusted only if it
// belongs to this user or root. OK if nothing listens: the call itself reports that.
absl::Status CheckServer(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return absl::OkStatus();
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == geteuid() ||
      peer.uid == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("what listens at ", path, " belongs to user ",
                                                  peer.uid, ", not to user ", geteuid(),
                                                  " or root; ask as that user, or check the path"));
}

// The end of the service concerns all its runs.
bool ConcernsAllRuns(const CtlOptions& options) {
  if (options.run_id.empty()) return true;
  const std::vector<FaultKind>& kinds = options.chaos.kinds;
  return options.command == CtlOptions::Command::kChaos &&
         std::find(kinds.begin(), kinds.end(), FaultKind::kService) != kinds.end();
}

// With an operator's certificate for the run, or for all runs. A socket needs none: the kernel
// identifies its peer.
absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenServiceChannel(const CtlOptions& options,
                                                                   const Security& security) {
  if (absl::Status threads = CheckThreads(kThreadsOfClient); !threads.ok()) return threads;
  const ServiceAddress& service = options.service;
  if (!service.socket.empty()) {
    if (absl::Status status = CheckServer(service.socket); !status.ok()) return status;
    return MakeServiceChannel(TargetOf(service));
  }
  const char* role = options.command == CtlOptions::Command::kStatus ? "status" : "ctl";
  auto credentials =
      security.ForOperator(ConcernsAllRuns(options) ? std::nullopt : std::optional(options.run_id),
                           absl::StrCat(role, "-", HostName(), "-", getpid()));
  if (!credentials.ok()) return credentials.status();
  auto channel =
      MakeServiceChannel(TargetOf(service), *std::move(credentials), service.endpoint.host);
  // The channel then asks the service that leads. Errors are those of the command itself.
  if (!service.endpoint.others.empty())
    GetStatus(channel, options.run_id, options.timeout).status().IgnoreError();
  return channel;
}

absl::StatusOr<std::string> AskForStatus(const CtlOptions& options,
                                         const std::shared_ptr<ServiceChannel>& channel) {
  const absl::StatusOr<ServiceStatus> status =
      GetStatus(channel, options.run_id, options.timeout, options.json);
  if (!status.ok()) return status.status();
  const std::string service = TargetOf(options.service);
  return options.json ? StatusJson(*status, service) : StatusText(*status, service);
}

// The text to print.
absl::StatusOr<std::string> Ask(const CtlOptions& options,
                                const std::shared_ptr<ServiceChannel>& channel) {
  const std::string by = HostName();
  absl::StatusOr<std::string> sentence = absl::InternalError("no such command");
  switch (options.command) {
    case CtlOptions::Command::kStatus:
      return AskForStatus(options, channel);
    case CtlOptions::Command::kLogs:
    case CtlOptions::Command::kStacks:
    case CtlOptions::Command::kChaos:
    case CtlOptions::Command::kAttach:
    case CtlOptions::Command::kRuns:
    case CtlOptions::Command::kEvents:
    case CtlOptions::Command::kWhy:
    case CtlOptions::Command::kTop:
    case CtlOptions::Command::kWeb:
    case CtlOptions::Command::kCapsule:
    case CtlOptions::Command::kReplay:
      break;  // functions of their own
    case CtlOptions::Command::kStop:
      sentence = StopRun(channel, options.run_id, {.by = by, .now = options.now}, options.timeout);
      break;
    case CtlOptions::Command::kPromote:
      sentence = Promote(channel, by, options.force, options.timeout);
      break;
    case CtlOptions::Command::kDrain:
      sentence = DrainNode(channel, options.run_id,
                           {.by = by,
                            .node = options.node,
                            .force = options.force,
                            .at_next_round = options.at_next_round,
                            .dry_run = options.dry_run},
                           options.timeout);
      break;
  }
  if (!sentence.ok()) return sentence.status();
  return absl::StrCat(*sentence, "\n");
}

// Subscribes before it stops the run, because a service that ends with the run reports the end
// first.
int StopAndWait(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
                const std::string& program) {
  absl::StatusOr<EndWatch> watch = WatchEnd(options, channel);
  if (!watch.ok()) return Fail(program, watch.status(), kExitFailure);
  const absl::StatusOr<std::string> sentence = Ask(options, channel);
  if (!sentence.ok()) return Fail(program, sentence.status(), kExitFailure);
  if (Show(*sentence) != 0) return kExitFailure;
  const absl::StatusOr<RunOver> end = WaitForEnd(options, *watch);
  if (!end.ok()) return Fail(program, end.status(), kExitFailure);
  Show(absl::StrCat(EndSentence(watch->run_id, *end), "\n"));
  return end->verdict ? end->verdict->exit_code : kExitFailure;
}

// Another program that is installed beside this one: the checkup is part of ddprun, the screen of
// ddpctl.
int Become(const std::string& other, const std::vector<std::string>& arguments,
           const std::string& program) {
  std::string path = (OwnProgram().parent_path() / other).string();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {path.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return Fail(program,
              absl::NotFoundError(absl::StrCat("cannot execute ", path, ": ", std::strerror(errno),
                                               "; install ddprun and ddpctl in one folder")),
              kExitFailure);
}

bool NamesService(const CtlOptions& options) {
  return !options.service.socket.empty() || !options.service.endpoint.host.empty();
}

constexpr absl::string_view kNoService =
    "which rendezvous service? give --rdzv-endpoint HOST[:PORT], or --master-addr; ";

// The detached run that is meant where no service is named.
absl::StatusOr<RunRecord> FindDetached(const CtlOptions& options) {
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  if (!folder.ok()) return folder.status();
  const auto run = FindRun(*folder, options.run_id, RunChoice::kLive);
  if (run.ok()) return run->record;
  return absl::NotFoundError(absl::StrCat(kNoService, run.status().message()));
}

// Whether the command also has something to say of a run that has ended.
bool ShowsPast(CtlOptions::Command command) {
  using Command = CtlOptions::Command;
  return command == Command::kEvents || command == Command::kLogs || command == Command::kWeb ||
         command == Command::kWhy;
}

// Of a run that has ended, or that has no service yet. Absent: it is to be asked.
std::optional<int> ShowPast(const CtlOptions& options) {
  using Command = CtlOptions::Command;
  if (!ShowsPast(options.command)) return std::nullopt;
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  if (!folder.ok()) return std::nullopt;
  const auto run = FindRun(*folder, options.run_id, RunChoice::kAny);
  if (!run.ok() || (run->live && !run->record.service.empty())) return std::nullopt;
  const std::string own = FolderOf(*folder, run->record.name);
  if (options.command == Command::kWeb) return SavePastPage(options, *run, own);
  if (options.command == Command::kLogs) return ShowPastLogs(options, own);
  if (options.command == Command::kEvents) return ShowPastEvents(options, own);
  return ShowPastWhy(options, *run, own);
}

// Of a detached run; empty: it is none.
std::string OwnFolder(const std::string& name) {
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  return name.empty() || !folder.ok() ? "" : FolderOf(*folder, name);
}

// A run that is ending has no service any more, while its recorder writes its end. Absent: its
// service answers, or it does not end.
std::optional<int> ShowEnding(const CtlOptions& options, const std::string& name,
                              const std::shared_ptr<ServiceChannel>& channel) {
  if (TheRun(options, channel).ok()) return std::nullopt;
  CtlOptions of_name = options;
  of_name.run_id = name;
  const TimePoint deadline = std::chrono::steady_clock::now() + kRunLastWriteTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto code = ShowPast(of_name)) return code;
    std::this_thread::sleep_for(kEndingLookInterval);
  }
  return std::nullopt;
}

// Its service, and its secret.
absl::Status UseService(const RunRecord& record, CtlOptions& options) {
  if (record.service.empty()) {
    return absl::UnavailableError(absl::StrCat(
        kNoService, "run ", record.name, " has none yet; ddpctl attach shows what it waits for"));
  }
  absl::StatusOr<ServiceAddress> service = ParseService(record.service);
  if (!service.ok()) return service.status();
  if (!service->socket.empty() && record.host != HostName()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", record.name, " is on ", record.host,
                     ", and its service answers there alone: run ddpctl there; ddpctl attach shows "
                     "its lines here too"));
  }
  options.service = *std::move(service);
  options.security = record.security;
  options.run_id = record.run_id;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunStatus> TheRun(const CtlOptions& options,
                                 const std::shared_ptr<ServiceChannel>& channel) {
  const auto status = GetStatus(channel, options.run_id, options.timeout);
  if (!status.ok()) return status.status();
  if (status->runs.size() == 1) return status->runs.front();
  return absl::InvalidArgumentError(
      status->runs.empty() ? "the rendezvous service has no run; start one first"
                           : absl::StrCat("the rendezvous service has ", status->runs.size(),
                                          " runs; name one of them with --rdzv-id"));
}

int CtlFailed(const absl::Status& why) { return Fail("ddpctl", why, kExitFailure); }

int CtlProgram(int argc, char** argv, CtlScreen screen) {
  if (!StandardStreamsAreOpen()) return 1;
  ExplainThreadFailures("ddpctl");
  return RunCtl(std::vector<std::string>(argv + 1, argv + argc), "ddpctl", screen);
}

int RunCtl(const std::vector<std::string>& arguments, const std::string& program,
           CtlScreen screen) {
  if (!arguments.empty() && arguments.front() == "doctor")
    return Become("ddprun", arguments, program);
  // Before anything else: from here on the environment does not contain the secret.
  TokenVariable token = TakeTokenVariable();
  auto parsed = ParseCtlOptions(arguments, ReadVariable);
  if (!parsed.ok()) return Fail(program, parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  auto& options = std::get<CtlOptions>(*parsed);
  if (options.command == CtlOptions::Command::kRuns) return ShowRuns(options);
  if (options.command == CtlOptions::Command::kCapsule) return MakeCapsule(options);
  if (options.command == CtlOptions::Command::kReplay) return ShowReplay(options);
  if (options.command == CtlOptions::Command::kAttach)
    return options.serves ? ServeAttach(options) : Attach(options);
  if (!options.verdict_file.empty()) return ShowWhyOfFile(options);
  std::string detached;
  if (!NamesService(options)) {
    if (const auto code = ShowPast(options)) return *code;
    const absl::StatusOr<RunRecord> run = FindDetached(options);
    if (!run.ok()) return Fail(program, run.status(), kExitUsage);
    if (options.command == CtlOptions::Command::kStop && run->service.empty())
      return StopDetached(options, *run);
    if (absl::Status used = UseService(*run, options); !used.ok())
      return Fail(program, used, kExitFailure);
    token.reset();
    detached = run->name;
  }
  absl::StatusOr<Security> security = Security();
  if (options.service.socket.empty()) {
    prctl(PR_SET_DUMPABLE, 0);
    security = Security::Open(options.security, std::move(token), ReadVariable);
  }
  if (!security.ok()) return Fail(program, security.status(), kExitUsage);
  std::optional<WatchSignals> signals;
  const bool page = options.command == CtlOptions::Command::kWeb;
  if (options.refresh || page) signals.emplace();
  auto channel = OpenServiceChannel(options, *security);
  if (!channel.ok()) return Fail(program, channel.status(), kExitFailure);
  if (page) return ShowPage(options, *channel, OwnFolder(detached), *signals);
  if (signals) {
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    if (terminal && screen == nullptr)
      std::fputs("ddpctl: it has no screen where it is a link to ddprun; lines are printed\n",
                 stderr);
    return (terminal && screen != nullptr ? screen : WatchStatus)(options, *channel, *signals);
  }
  if (!detached.empty() && ShowsPast(options.command)) {
    if (const auto code = ShowEnding(options, detached, *channel)) return *code;
  }
  if (options.command == CtlOptions::Command::kLogs) return ShowLogs(options, *channel);
  if (options.command == CtlOptions::Command::kEvents) return ShowEvents(options, *channel);
  if (options.command == CtlOptions::Command::kWhy) return ShowWhy(options, *channel);
  if (options.command == CtlOptions::Command::kStacks) return ShowStacks(options, *channel);
  if (options.command == CtlOptions::Command::kChaos) return RunChaos(options, *channel);
  if (options.wait) return StopAndWait(options, *channel, program);
  const absl::StatusOr<std::string> text = Ask(options, *channel);
  if (!text.ok()) return Fail(program, text.status(), kExitFailure);
  return Show(*text);
}

int StatusCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "status");
  const auto parsed = ParseCtlOptions(arguments, ReadVariable);
  const auto* const options = parsed.ok() ? std::get_if<CtlOptions>(&*parsed) : nullptr;
  if (options != nullptr && options->refresh && isatty(STDOUT_FILENO) == 1)
    return Become("ddpctl", arguments, "ddprun");
  return RunCtl(arguments, "ddprun");
}

}  // namespace ddprun
