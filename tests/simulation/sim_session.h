// SPDX-License-Identifier: Apache-2.0
// A node's end of the session on simulated time, by the rules of session_client.cc: when a stream
// that broke is made again, what is said again on it, and when the node gives up.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/client/session_client.h"
#include "tests/simulation/sim_message.h"

namespace ddprun {

class SimSession {
 public:
  using Handler = std::function<void(SessionEvent)>;

  SimSession(SimClock& clock, SimRunNetwork& network, SimProcess self, SimProcess service,
             Join join, std::chrono::milliseconds connect_timeout, Handler handler);

  void Begin();
  void Send(Report report);
  // What was sent before still goes out.
  void Close();

  // Whether the stream is one of this session's; then it has been told.
  bool OnConnected(SimStream stream);
  bool OnMessage(SimStream stream, const SimMessage& message);
  bool OnClosed(SimStream stream);

  bool ended() const { return ended_; }

 private:
  void TryOnce();
  void Ended(bool refused);
  bool MayTryAgain(bool refused) const;

  SimClock& clock_;
  SimRunNetwork& network_;
  const SimProcess self_;
  const SimProcess service_;
  const Handler handler_;

  Join join_;
  TimePoint deadline_;
  std::optional<SimStream> stream_;
  TimePoint dialled_{};
  bool connected_ = false;  // this stream
  std::vector<Report> said_;
  RoundId round_ = kNoRound;
  std::optional<Accepted> lease_;
  std::chrono::milliseconds backoff_;
  bool answered_once_ = false;
  bool final_ = false;
  bool ended_ = false;
};

}  // namespace ddprun
