// SPDX-License-Identifier: Apache-2.0
// What a journal adds to a store operation.
//
//     journal_cost [--seconds 2] [--callers 1] [--folder FOLDER]
//
// A service in a process of its own, and a node of another process whose workers (threads here) set
// keys of 64 bytes, one acknowledged call after another. In turn: without a journal, with one, and
// with one that flushes the disk before each answer (--journal-sync). Prints the time of a call,
// the calls a second of all callers, and the processor time of service, agent and callers for a
// call.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/service/server.h"
#include "rendezvous/tcpstore/store_client.h"
#include "tests/bench/bench_node.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "journal_cost: %s\n", what.c_str());
  std::_Exit(1);
}

// The service in a child process, until the object goes.
class Service {
 public:
  explicit Service(std::optional<JournalOptions> journal) {
    int ends[2];
    if (pipe(ends) != 0) Die("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      RendezvousServer::Options options{.address = "127.0.0.1", .default_run_id = "bench"};
      options.journal = std::move(journal);
      const auto server = RendezvousServer::Start(std::move(options));
      if (!server.ok()) Die(std::string(server.status().message()));
      const int port = (*server)->port();
      if (write(ends[1], &port, sizeof port) != sizeof port) Die("no pipe");
      for (;;) pause();
    }
    close(ends[1]);
    if (read(ends[0], &port_, sizeof port_) != sizeof port_) Die("the service does not start");
    close(ends[0]);
  }
  ~Service() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Of the service and of this process, all threads.
  double CpuSeconds() const {
    double seconds = 0;
    for (const pid_t pid : {pid_, getpid()}) {
      clockid_t clock{};
      timespec time{};
      if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
        Die("no processor time");
      }
      seconds += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
    return seconds;
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

void Measure(const char* name, const Service& service, int callers,
             std::chrono::duration<double> time, const std::string& folder) {
  const std::string socket_path = folder + "/agent";
  BenchNode node(service.target(), {.run_id = "bench", .name = "node", .socket_path = socket_path});
  node.WaitForStart();
  std::vector<std::vector<double>> samples(static_cast<std::size_t>(callers));
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  const double cpu_before = service.CpuSeconds();
  for (int c = 0; c < callers; ++c) {
    threads.emplace_back([&, c] {
      const auto store =
          StoreClient::Connect({.target = "unix:" + socket_path, .round = RoundId{1}});
      if (!store.ok()) Die(std::string(store.status().message()));
      StoreOp op;
      op.verb = StoreVerb::kSet;
      op.keys = {"key " + std::to_string(c)};
      op.values = {std::string(64, 'v')};
      while (Clock::now() - begin < time) {
        const auto before = Clock::now();
        const StoreResult result = (*store)->Call(op);
        if (!result.status.ok()) Die(std::string(result.status.message()));
        samples[static_cast<std::size_t>(c)].push_back(
            std::chrono::duration<double, std::micro>(Clock::now() - before).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double cpu = service.CpuSeconds() - cpu_before;
  std::vector<double> all;
  for (const auto& some : samples) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  std::printf("%-16s callers %3d: p50 %8.1f us, p99 %8.1f us, %8.0f a second, %6.1f us of CPU\n",
              name, callers, all[all.size() / 2], all[all.size() * 99 / 100],
              static_cast<double>(all.size()) / time.count(),
              1e6 * cpu / static_cast<double>(all.size()));
}

int Main(int argc, char** argv) {
  double seconds = 2;
  int callers = 1;
  std::filesystem::path folder = std::filesystem::temp_directory_path();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seconds") seconds = std::atof(argv[i + 1]);
    if (name == "--callers") callers = std::atoi(argv[i + 1]);
    if (name == "--folder") folder = argv[i + 1];
  }
  if (seconds <= 0 || callers < 1) {
    Die("usage: journal_cost [--seconds N] [--callers N] [--folder FOLDER]");
  }
  std::string pattern = (folder / "journal-cost-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) Die("cannot make a folder in " + folder.string());
  const auto journal = [&](const char* name, bool sync) {
    return JournalOptions{
        .open =
            [folder = pattern + "/" + name, sync](const JournalReplay& replay) {
              return OpenSqliteJournal(folder, {.sync_on_commit = sync}, replay);
            },
        .on_failure = [](const absl::Status& status) { Die(std::string(status.message())); }};
  };
  const std::chrono::duration<double> time(seconds);
  // All before the first thread, since a child cannot use gRPC after it.
  const Service plain(std::nullopt);
  const Service journaled(journal("a", false));
  const Service synced(journal("b", true));
  Measure("no journal", plain, callers, time, pattern);
  Measure("journal", journaled, callers, time, pattern);
  Measure("journal, synced", synced, callers, time, pattern);
  std::filesystem::remove_all(pattern);
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }
