// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/node_session.h"

#include <unistd.h>

#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/process/thread_check.h"

namespace ddprun {
namespace {

// What the client may be late by on a busy machine.
constexpr std::chrono::seconds kClientSlack{5};

}  // namespace

absl::Status NodeSession::OpenService(const Options& options, const Security& security,
                                      const std::optional<TlsCredentials>& credentials,
                                      RunWatcher* watcher,
                                      const std::function<void(const std::string&)>& on_note) {
  own_run_id_ = options.run_id.empty() ? MakeRunId() : options.run_id;
  absl::StatusOr<RendezvousEndpoint> service =
      OpenRendezvous(options, security, own_run_id_, watcher, on_note);
  if (!service.ok()) return service.status();
  UseService(*std::move(service), credentials);
  return absl::OkStatus();
}

void NodeSession::UseService(RendezvousEndpoint service,
                             const std::optional<TlsCredentials>& credentials) {
  service_ = std::move(service);
  if (!hosts_service()) channel_ = MakeServiceChannel(service_.target, credentials, service_.host);
}

absl::StatusOr<std::shared_ptr<ServiceChannel>> NodeSession::OpenOwnChannel(
    const Security& security) const {
  if (service_.name.empty()) return MakeServiceChannel(service_.server->target());
  auto credentials =
      security.ForOperator(own_run_id_, absl::StrCat("web-", HostName(), "-", getpid()));
  if (!credentials.ok()) return credentials.status();
  return MakeServiceChannel(service_.target, *std::move(credentials), service_.host);
}

void NodeSession::Begin(Join join, std::chrono::milliseconds timeout) {
  SessionClient::Handler handler = [this](SessionEvent event) { events_.Post(std::move(event)); };
  session_ = hosts_service()
                 ? service_.server->OpenSession(std::move(join), std::move(handler))
                 : SessionClient::Open(channel_, std::move(join), timeout, std::move(handler));
  if (!hosts_service()) answer_due_ = std::chrono::steady_clock::now() + timeout + kClientSlack;
}

void NodeSession::Send(Report report) {
  if (session_ != nullptr) session_->Send(std::move(report));
}

bool NodeSession::BreakFor(std::chrono::milliseconds pause) {
  return session_ != nullptr && session_->BreakFor(pause);
}

void NodeSession::Follow(const SessionEvent& event, TimePoint now) {
  if (std::holds_alternative<Connecting>(event)) return;
  const auto* broken = std::get_if<Reconnecting>(&event);
  answer_due_ =
      broken != nullptr ? std::optional(now + broken->remaining + kClientSlack) : std::nullopt;
}

std::vector<SessionEvent> NodeSession::TakeEvents(TimePoint now) {
  std::vector<SessionEvent> events = events_.TakeAll();
  if (given_up_) return {};
  for (const SessionEvent& event : events) Follow(event, now);
  if (AnswerIsOverdue(now)) {
    given_up_ = true;
    answer_due_.reset();
    events.emplace_back(SessionEnded{absl::FailedPreconditionError(absl::StrCat(
        "this node's threads for the network do not answer, as where no thread can be started: ",
        ThreadsRemedy()))});
  }
  return events;
}

std::optional<TimePoint> NodeSession::NextDeadline() const {
  return Earliest({heartbeat_due_, answer_due_});
}

void NodeSession::OnAccepted(const Accepted& accepted, TimePoint now) {
  heartbeat_ = accepted.heartbeat;
  heartbeat_due_ = heartbeat_.count() > 0 ? std::optional(now + heartbeat_) : std::nullopt;
  reconnect_timeout_ = accepted.durable ? kReconnectTimeout : accepted.lease;
}

void NodeSession::SendHeartbeat(Heartbeat heartbeat, TimePoint now) {
  Send(std::move(heartbeat));
  if (heartbeat_due_.has_value()) heartbeat_due_ = now + heartbeat_;
}

void NodeSession::CloseService() {
  channel_.reset();
  if (hosts_service() && !service_.name.empty()) service_.server->WaitUntilDrained(kFinishTimeout);
  if (service_.replica != nullptr) service_.replica->WaitUntilDrained(kFinishTimeout);
}

}  // namespace ddprun
