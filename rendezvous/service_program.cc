// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service_program.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/command_line.h"
#include "rendezvous/election/elected_service.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/metrics.h"
#include "rendezvous/observe/run_observer.h"
#include "rendezvous/process/resource_limit.h"
#include "rendezvous/process/standard_streams.h"
#include "rendezvous/process/thread_check.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/service/server.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;
// From a signal to the end: the service itself needs at most a second.
constexpr absl::Duration kStopTimeout = absl::Seconds(5);

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "ddprun-rendezvous: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Receives SIGINT and SIGTERM on a thread of its own. The service may then wait for ever, above all
// for a journal whose disk hangs, so the process ends kStopTimeout after the first signal in any
// case. Construct it before the first other thread, so that all have the signals blocked.
class StopSignals {
 public:
  explicit StopSignals(const std::string& journal) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([state = state_, signals, journal] { Take(*state, signals, journal); }).detach();
  }
  ~StopSignals() {
    absl::MutexLock lock(&state_->mutex);
    state_->ended = true;
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void Wait() const {
    absl::MutexLock lock(&state_->mutex);
    state_->mutex.Await(absl::Condition(&state_->came));
  }

 private:
  struct State {
    absl::Mutex mutex;
    bool came = false;
    bool ended = false;
  };

  static void Take(State& state, const sigset_t& signals, const std::string& journal) {
    int signal = 0;
    sigwait(&signals, &signal);
    absl::MutexLock lock(&state.mutex);
    state.came = true;
    if (state.mutex.AwaitWithTimeout(absl::Condition(&state.ended), kStopTimeout)) return;
    Complain(
        absl::DeadlineExceededError(absl::StrCat(
            "the service has not ended within ", absl::ToInt64Seconds(kStopTimeout),
            " s of its signal and is ended now: ",
            journal.empty()
                ? "it hangs"
                : absl::StrCat(ddprun::IsEtcdAddress(journal) ? "" : "the disk of the journal in ",
                               journal, " does not answer; what was committed is in it"))),
        kExitFailure);
    _exit(kExitFailure);
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The service in one of its two forms: alone, or one of several of which one leads.
class Service {
 public:
  // Listens. `on_failure`: called once, on any thread, if it cannot go on.
  static absl::StatusOr<Service> Start(const ddprun::ServiceCommand& command,
                                       std::optional<ddprun::TlsCredentials> credentials,
                                       std::optional<ddprun::TlsCredentials> probe,
                                       ddprun::RunWatcher& watcher,
                                       std::function<void(const absl::Status&)> on_failure) {
    ddprun::RendezvousServer::Options options{.address = command.host,
                                              .port = command.port,
                                              .credentials = std::move(credentials),
                                              .default_run_id = command.run_id,
                                              .watcher = &watcher};
    Service service;
    if (ddprun::IsEtcdAddress(command.journal)) {
      auto address = ddprun::ParseEtcdAddress(command.journal);
      if (!address.ok()) return address.status();
      auto elected = ddprun::StartElectedService(
          {.server = std::move(options),
           .probe_credentials = std::move(probe),
           .etcd = *std::move(address),
           .etcd_tls = command.journal_tls,
           .stands_by = command.standby,
           .callbacks = {.on_note = Note, .on_end = std::move(on_failure)}});
      if (!elected.ok()) return elected.status();
      service.elected_ = *std::move(elected);
      return service;
    }
    if (!command.journal.empty()) {
      options.journal = {.open =
                             [&](const ddprun::JournalReplay& replay) {
                               return ddprun::OpenSqliteJournal(
                                   command.journal, {.sync_on_commit = command.journal_sync},
                                   replay);
                             },
                         .on_failure = std::move(on_failure)};
    }
    auto server = ddprun::RendezvousServer::Start(std::move(options));
    if (!server.ok()) return server.status();
    service.server_ = *std::move(server);
    return service;
  }

  std::string target() const {
    return elected_ != nullptr ? elected_->target() : server_->target();
  }
  std::vector<ddprun::RunStatus> Status() const {
    return elected_ != nullptr ? elected_->Status() : server_->Status();
  }

 private:
  static void Note(const std::string& sentence) {
    std::printf("%s\n", sentence.c_str());
    std::fflush(stdout);
  }

  std::unique_ptr<ddprun::RendezvousServer> server_;
  std::unique_ptr<ddprun::ServiceReplica> elected_;
};

int Serve(const ddprun::ServiceCommand& command, ddprun::Security security) {
  const StopSignals stop_signals(command.journal);
  // A file at the limit of `ulimit -f` is then an error like a full disk.
  signal(SIGXFSZ, SIG_IGN);
  auto credentials = security.ForService();
  if (!credentials.ok()) return Complain(credentials.status(), kExitFailure);
  auto probe = security.ForProbe();
  if (!probe.ok()) return Complain(probe.status(), kExitFailure);
  security.Forget();
  std::atomic<bool> failed = false;
  std::unique_ptr<ddprun::EventLog> log;
  if (!command.event_log.empty()) {
    auto opened = ddprun::EventLog::Open(command.event_log, [](const std::string& sentence) {
      std::fprintf(stderr, "ddprun-rendezvous: %s\n", sentence.c_str());
    });
    if (!opened.ok()) return Complain(opened.status(), kExitFailure);
    log = *std::move(opened);
  }
  ddprun::RunObserver observer([&log](const ddprun::RunEvent& event) {
    if (log != nullptr) log->Write(event);
  });
  auto service = Service::Start(command, *std::move(credentials), *std::move(probe), observer,
                                [&](const absl::Status& status) {
                                  Complain(status, kExitFailure);
                                  failed = true;
                                  kill(getpid(), SIGTERM);
                                });
  if (!service.ok()) {
    return Complain(service.status(),
                    absl::IsInvalidArgument(service.status()) ? kExitUsage : kExitFailure);
  }
  std::unique_ptr<ddprun::MetricsExporter> metrics;
  if (command.metrics_port > 0) {
    auto started = ddprun::StartMetricsExporter(
        command.metrics_addr, command.metrics_port, [&observer, &service = *service] {
          auto series = ddprun::ServiceMetrics(service.Status(), observer.Counters());
          for (auto& more : ddprun::ProcessMetrics()) series.push_back(std::move(more));
          return series;
        });
    if (!started.ok()) return Complain(started.status(), kExitFailure);
    metrics = *std::move(started);
  }
  std::printf("listening on %s\n", service->target().c_str());
  std::fflush(stdout);
  stop_signals.Wait();
  return failed ? kExitFailure : 0;
}

// The service's credentials; none for a unix socket, where the kernel identifies peers.
absl::StatusOr<ddprun::Security> OpenSecurity(
    const ddprun::ServiceCommand& command,
    std::optional<absl::StatusOr<ddprun::Token>> token_variable) {
  if (absl::StartsWith(command.host, "unix:")) return ddprun::Security();
  // The secret must not end up in a core file.
  prctl(PR_SET_DUMPABLE, 0);
  return ddprun::Security::Open(command.security, std::move(token_variable), ddprun::ReadVariable);
}

}  // namespace

int ddprun::ServiceProgram(int argc, char** argv) {
  if (!ddprun::StandardStreamsAreOpen()) return 1;
  ddprun::ExplainThreadFailures("ddprun-rendezvous");
  // First: from here on the environment does not have the secret.
  auto token_variable = ddprun::TakeTokenVariable();
  const auto command = ddprun::ParseServiceCommand(std::vector<std::string>(argv + 1, argv + argc));
  if (!command.ok()) return Complain(command.status(), kExitUsage);
  switch (command->action) {
    case ddprun::ServiceCommand::Action::kHelp:
      std::printf("%s", ddprun::ServiceUsage().c_str());
      return 0;
    case ddprun::ServiceCommand::Action::kVersion:
      std::printf("ddprun-rendezvous %s\n", ddprun::kSoftwareVersion);
      return 0;
    case ddprun::ServiceCommand::Action::kServe:
      break;
  }
  auto security = OpenSecurity(*command, std::move(token_variable));
  if (!security.ok()) return Complain(security.status(), kExitUsage);
  if (const absl::Status threads = ddprun::CheckThreads(ddprun::kThreadsOfService); !threads.ok())
    return Complain(threads, kExitFailure);
  ddprun::RaiseFileLimit();
  return Serve(*command, *std::move(security));
}
