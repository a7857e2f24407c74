// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_session.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

}  // namespace

SimSession::SimSession(SimClock& clock, SimRunNetwork& network, SimProcess self, SimProcess service,
                       Join join, milliseconds connect_timeout, Handler handler)
    : clock_(clock),
      network_(network),
      self_(self),
      service_(service),
      handler_(std::move(handler)),
      join_(std::move(join)),
      deadline_(clock.now() + connect_timeout),
      backoff_(kConnectBackoffMin) {}

void SimSession::Begin() {
  clock_.At(
      deadline_,
      [this] {
        if (ended_ || answered_once_) return;
        ended_ = true;
        if (stream_) network_.Close(self_, *stream_);
        handler_(SessionEnded{absl::DeadlineExceededError("the service was not reached")});
      },
      network_.Timers(self_));
  TryOnce();
}

void SimSession::TryOnce() {
  if (ended_) return;
  connected_ = false;
  dialled_ = clock_.now();
  stream_ = network_.Dial(self_, service_);
  network_.Send(self_, *stream_, Report(join_));
}

void SimSession::Send(Report report) {
  if (ended_) return;
  const bool once =
      std::holds_alternative<Heartbeat>(report) || std::holds_alternative<PreemptionReport>(report);
  if (!once) said_.push_back(report);
  if (connected_) network_.Send(self_, *stream_, std::move(report));
}

void SimSession::Close() {
  ended_ = true;
  if (stream_) network_.Close(self_, *stream_);
  stream_.reset();
}

bool SimSession::OnConnected(SimStream stream) {
  if (stream_ != stream) return false;
  connected_ = answered_once_ = true;
  for (const Report& report : said_) network_.Send(self_, stream, report);
  return true;
}

bool SimSession::OnMessage(SimStream stream, const SimMessage& message) {
  const auto* directive = std::get_if<Directive>(&message);
  if (stream_ != stream || directive == nullptr || ended_) return stream_ == stream;
  final_ = final_ || std::holds_alternative<Finish>(*directive) ||
           std::holds_alternative<Refused>(*directive);
  if (std::holds_alternative<Finish>(*directive)) network_.Send(self_, stream, Report(Leave{}));
  bool back = false;
  if (const auto* accepted = std::get_if<Accepted>(directive)) {
    back = lease_.has_value();
    lease_ = *accepted;
    backoff_ = kConnectBackoffMin;
  } else if (const auto* start = std::get_if<Start>(directive);
             start != nullptr && start->round != round_) {
    round_ = start->round;
    std::erase_if(said_,
                  [&](const Report& report) { return RoundOf(report).value_or(round_) < round_; });
  }
  if (back) handler_(Reconnected{});
  handler_(*directive);
  return true;
}

bool SimSession::OnClosed(SimStream stream) {
  if (stream_ != stream) return false;
  stream_.reset();
  const bool refused = !connected_ && clock_.now() - dialled_ < kConnectAttemptTimeout;
  if (!ended_) Ended(refused);
  return true;
}

bool SimSession::MayTryAgain(bool refused) const {
  if (final_) return false;
  if (!join_.resume) return !answered_once_;
  return lease_->durable || !refused;
}

void SimSession::Ended(bool refused) {
  const bool was_connected = std::exchange(connected_, false);
  const bool breaks = was_connected && lease_ && !final_;
  if (breaks) {
    join_.resume = true;
    deadline_ = clock_.now() + (lease_->durable ? milliseconds(kReconnectTimeout) : lease_->lease);
  }
  const Duration remaining = deadline_ - clock_.now();
  if (!MayTryAgain(refused) || remaining <= Duration(0)) {
    ended_ = true;
    handler_(
        SessionEnded{final_ ? absl::OkStatus() : absl::UnavailableError("the connection ended")});
    return;
  }
  const auto left = std::chrono::duration_cast<milliseconds>(remaining);
  if (breaks) handler_(Reconnecting{"the stream broke", left});
  clock_.After(
      std::min<Duration>(backoff_, remaining), [this] { TryOnce(); }, network_.Timers(self_));
  backoff_ = std::min<milliseconds>(backoff_ * 2, kConnectBackoffMax);
}

}  // namespace ddprun
