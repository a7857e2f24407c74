// SPDX-License-Identifier: Apache-2.0
// A node's way to the store on simulated time: the real folder, and the rules of store_proxy.cc for
// the stream to the service.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "rendezvous/store/store_coalescer.h"
#include "tests/simulation/sim_message.h"

namespace ddprun {

class SimStore {
 public:
  using OnAnswer =
      std::function<void(StoreWorker worker, std::uint64_t id, const StoreResult& result)>;

  // `skew`: of the node's clock.
  SimStore(SimClock& clock, SimRunNetwork& network, SimProcess self, SimProcess service,
           std::string node_id, Duration skew, OnAnswer on_answer);

  void SetReconnectTimeout(std::chrono::milliseconds timeout) { reconnect_timeout_ = timeout; }
  void SetRound(RoundId round);
  void Submit(StoreWorker worker, std::uint64_t id, StoreOp op);
  void WorkerGone(StoreWorker worker);
  void ServiceIsBack();
  void Fail(const absl::Status& status);
  void Close();

  bool OnConnected(SimStream stream);
  bool OnMessage(SimStream stream, SimMessage& message);
  bool OnClosed(SimStream stream);

 private:
  TimePoint Now() const { return clock_.now() + skew_; }
  void Idle();
  void Open();
  void Flush();
  void Give(const StoreCoalescer::Answers& answers);
  void WakeAt(TimePoint time);

  SimClock& clock_;
  SimRunNetwork& network_;
  const SimProcess self_;
  const SimProcess service_;
  const std::string node_id_;
  const Duration skew_;
  const OnAnswer on_answer_;

  StoreCoalescer folder_;
  std::chrono::milliseconds reconnect_timeout_{0};
  std::optional<SimStream> stream_;
  std::uint64_t last_stream_ = 0;
  bool flush_due_ = false;
  bool closed_ = false;
  absl::Status failed_;
  absl::Status end_;  // what the service said before it ended the stream
  std::optional<TimePoint> lost_since_;
  TimePoint retry_at_{};
  std::chrono::milliseconds backoff_;
  SimClock::Event wake_;
};

}  // namespace ddprun
