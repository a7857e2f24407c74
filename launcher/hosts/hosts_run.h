// SPDX-License-Identifier: Apache-2.0
// The head of a run as a process: its transports, their pipes, the console and the signals. One
// thread and one loop; hosts_head decides.
#pragma once

#include <csignal>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/poller.h"
#include "launcher/hosts/hosts_head.h"
#include "launcher/output/console.h"
#include "launcher/output/line_splitter.h"
#include "launcher/processes/process_set.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/security/token.h"

namespace ddprun {

class HostsRun {
 public:
  struct Config {
    HeadConfig head;
    std::optional<Token> token;  // the run's secret: until the nodes have it
    sigset_t end_signals;
    sigset_t forwarded_signals;
    sigset_t signal_mask;  // what is started begins with it
  };

  explicit HostsRun(Config config);

  // Until all nodes have ended. The exit code.
  int Run();

 private:
  struct TransportProcess {
    std::optional<std::size_t> index;  // in processes_
    OwnedFd in;
    OwnedFd out;
    OwnedFd err;
    std::unique_ptr<LineSplitter> out_lines;
    std::unique_ptr<LineSplitter> err_lines;
    // What the process has not taken yet, from `sent` on. It may hold the secret: see Append().
    std::string unsent;
    std::size_t sent = 0;
    bool closing = false;  // the control pipe, once all is sent
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
  void OnErrLine(int transport, std::string_view line);
  // Whose line it is; srun's label is taken off.
  int TakeNode(int transport, absl::string_view& line) const;
  void Close();

  Config config_;
  HeadState state_;
  Poller poller_;
  Console console_;
  ProcessSet processes_;
  OwnedFd signal_fd_;
  std::vector<TransportProcess> transports_;  // by transport
  std::deque<HeadEvent> events_;
  bool feeding_ = false;
  TimePoint now_;
  std::string read_buffer_;
  std::optional<EndHead> end_;
};

}  // namespace ddprun
