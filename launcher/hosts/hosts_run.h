// SPDX-License-Identifier: Apache-2.0
// `ddprun -H`, the head of a run, as a process: its transports, their pipes, the console and the
// signals. One thread and one loop; hosts_head makes the decisions.
#pragma once

#include <csignal>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/poller.h"
#include "launcher/hosts/head_stdin.h"
#include "launcher/hosts/hosts_head.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/options/options.h"
#include "launcher/output/console.h"
#include "launcher/output/line_splitter.h"
#include "launcher/processes/spawn.h"
#include "launcher/runs/run_report.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/security/token.h"

namespace ddprun {

class HostsRun {
 public:
  struct Config {
    HeadConfig head;
    std::optional<Token> token;  // the run's secret, wiped when the nodes have it
    sigset_t end_signals;
    sigset_t forwarded_signals;
    sigset_t signal_mask;  // of the processes that are started
    RunReport report;      // to the recorder of a detached run
  };

  explicit HostsRun(Config config);

  // Runs until all nodes have ended, and returns the exit code.
  int Run();

 private:
  struct TransportProcess {
    std::optional<std::size_t> index;  // in processes_
    OwnedFd in;
    OwnedFd out;
    OwnedFd err;
    std::unique_ptr<LineSplitter> out_lines;
    std::unique_ptr<LineSplitter> err_lines;
    // Bytes from `sent` on are still to be written. May contain the secret: see Send().
    std::string unsent;
    std::size_t sent = 0;
    bool closing = false;  // close the control pipe once everything is sent
    bool waits_to_send = false;
  };

  TransportProcess& TransportAt(int transport) {
    return transports_[static_cast<std::size_t>(transport)];
  }
  void Feed(HeadEvent event);
  void Perform(const HeadEffect& effect);
  void Start(const StartTransport& start);
  absl::Status OpenPipes(TransportProcess& process, SpawnRequest& request,
                         std::vector<OwnedFd>& child_ends);
  // Wipes `text`.
  void Send(int transport, std::string text);
  void Pump(int transport);
  void HandleReady(const Ready& ready);
  void HandleSignals();
  void ReadPipe(int transport, OutputStream stream, std::size_t bytes_max);
  void HandleEnd(int transport);
  void OnOutLine(int transport, std::string_view line);
  void SendStdin(const std::optional<HeadStdin::Answer>& answer);
  void OnErrLine(int transport, std::string_view line);
  // The node that wrote the line. Removes srun's label.
  int TakeNode(int transport, absl::string_view& line) const;
  void Close();

  Config config_;
  HeadState state_;
  Poller poller_;
  Console console_;
  ProcessSet processes_;
  OwnedFd signal_fd_;
  HeadStdin stdin_;
  std::vector<TransportProcess> transports_;  // by transport
  std::deque<HeadEvent> events_;
  bool feeding_ = false;
  TimePoint now_;
  std::string read_buffer_;
  std::optional<EndHead> end_;
};

// Reads the hosts (-H, a hostfile or Slurm's variables) and plans. Errors: one sentence for people.
absl::StatusOr<HostsPlan> PlanHosts(const Options& options, const std::string& own_path,
                                    const GetVariable& get_variable);

// Runs the head and returns the exit code. `variable`: the result of TakeTokenVariable().
int RunHosts(const Options& options, const std::string& own_path,
             std::optional<absl::StatusOr<Token>> variable, const GetVariable& get_variable,
             RunReport report = {});

}  // namespace ddprun
