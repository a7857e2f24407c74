// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_store.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// What the workers ask within this time goes up together, as in one turn of the agent's loop.
constexpr std::chrono::microseconds kTurn{20};

bool MayPass(absl::StatusCode code) {
  return code != absl::StatusCode::kInvalidArgument &&
         code != absl::StatusCode::kFailedPrecondition &&
         code != absl::StatusCode::kPermissionDenied;
}

}  // namespace

SimStore::SimStore(SimClock& clock, SimRunNetwork& network, SimProcess self, SimProcess service,
                   std::string node_id, Duration skew, OnAnswer on_answer)
    : clock_(clock),
      network_(network),
      self_(self),
      service_(service),
      node_id_(std::move(node_id)),
      skew_(skew),
      on_answer_(std::move(on_answer)),
      backoff_(kConnectBackoffMin) {}

// ---- From the workers

void SimStore::SetRound(RoundId round) {
  Give(folder_.SetRound(round));
  Idle();
}

void SimStore::Submit(StoreWorker worker, std::uint64_t id, StoreOp op) {
  if (!failed_.ok()) {
    StoreResult result;
    result.status = failed_;
    on_answer_(worker, id, result);
    return;
  }
  if (folder_.unanswered() == 0) lost_since_.reset();
  Give(folder_.Submit(worker, id, std::move(op), Now()));
  Idle();
}

void SimStore::WorkerGone(StoreWorker worker) {
  folder_.WorkerGone(worker);
  Idle();
}

void SimStore::ServiceIsBack() {
  lost_since_.reset();
  Idle();
}

void SimStore::Fail(const absl::Status& status) {
  failed_ = status;
  Give(folder_.Fail(status));
}

void SimStore::Close() {
  closed_ = true;
  if (stream_) network_.Close(self_, *stream_);
  stream_.reset();
}

void SimStore::Give(const StoreCoalescer::Answers& answers) {
  for (const StoreCoalescer::Answer& answer : answers) {
    for (const auto& [worker, id] : answer.to) on_answer_(worker, id, answer.result);
  }
}

void SimStore::Idle() {
  if (closed_ || !failed_.ok()) return;
  if (stream_) {
    if (flush_due_ || !folder_.HasBatch()) return;
    flush_due_ = true;
    clock_.After(
        kTurn, [this] { Flush(); }, network_.Timers(self_));
    return;
  }
  if (!folder_.HasBatch()) return;
  if (!lost_since_ || Now() >= retry_at_) {
    Open();
    return;
  }
  Give(folder_.Tick(Now()));
  WakeAt(std::min(retry_at_, folder_.NextDeadline().value_or(retry_at_)));
}

void SimStore::WakeAt(TimePoint time) {
  clock_.Cancel(wake_);
  wake_ = clock_.At(
      time - skew_, [this] { Idle(); }, network_.Timers(self_));
}

// ---- The stream to the service

void SimStore::Open() {
  end_ = absl::UnavailableError("the stream broke");
  stream_ = network_.Dial(self_, service_);
  StoreHello hello;
  hello.run_id = "run";
  hello.node_id = node_id_;
  hello.stream = ++last_stream_;
  hello.unanswered = folder_.Unanswered();
  network_.Send(self_, *stream_, std::move(hello));
  Flush();
}

void SimStore::Flush() {
  flush_due_ = false;
  while (stream_ && folder_.HasBatch()) network_.Send(self_, *stream_, folder_.TakeBatch(Now()));
}

bool SimStore::OnConnected(SimStream stream) { return stream_ == stream; }

bool SimStore::OnMessage(SimStream stream, SimMessage& message) {
  if (stream_ != stream) return false;
  if (const auto* status = std::get_if<absl::Status>(&message)) end_ = *status;
  if (auto* replies = std::get_if<std::vector<StoreReply>>(&message)) {
    lost_since_.reset();
    backoff_ = kConnectBackoffMin;
    Give(folder_.Receive(std::move(*replies)));
    Idle();
  }
  return true;
}

bool SimStore::OnClosed(SimStream stream) {
  if (stream_ != stream) return false;
  stream_.reset();
  folder_.Lost();
  if (!lost_since_) lost_since_ = Now();
  if (MayPass(end_.code()) && Now() - *lost_since_ < reconnect_timeout_) {
    retry_at_ = std::min(Now() + backoff_, *lost_since_ + reconnect_timeout_);
    backoff_ = std::min<std::chrono::milliseconds>(2 * backoff_, kReconnectBackoffMax);
  } else {
    lost_since_.reset();
    backoff_ = kConnectBackoffMin;
    Give(folder_.Fail(absl::UnavailableError("the node's connection to the store ended")));
  }
  Idle();
  return true;
}

}  // namespace ddprun
