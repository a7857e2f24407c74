// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/control_client.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "rendezvous/base/backoff.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// One call of `Service`'s `method`.
template <typename Service, typename Request, typename Answer>
absl::StatusOr<Answer> Ask(ServiceChannel& channel, milliseconds timeout,
                           grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Answer*),
                           const Request& request) {
  const auto deadline = std::chrono::system_clock::now() + timeout;
  for (std::size_t asked = 1;; ++asked) {
    const auto stub = Service::NewStub(channel.channel());
    grpc::ClientContext context;
    context.set_deadline(deadline);
    Answer answer;
    const grpc::Status status = ((*stub).*method)(&context, request, &answer);
    if (status.ok()) return answer;
    // A service that stands by, or is gone: another one may lead.
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || asked >= channel.services())
      return CallError(channel, status, timeout);
    channel.AskNext();
  }
}

// A call that is cut off may have met a service that is ending. A retry then finds that nothing
// listens any more, which differs from a service that rejects this node.
grpc::Status Call(ServiceChannel& channel, const LossReport& report, Clock::time_point deadline) {
  Backoff backoff;
  for (std::size_t asked = 1;; ++asked) {
    const auto stub = v1::Rendezvous::NewStub(channel.channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + (deadline - Clock::now()));
    v1::LossAnswer answer;
    const grpc::Status status = stub->ReportLoss(&context, ToProto(report), &answer);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && asked < channel.services()) {
      channel.AskNext();
      continue;
    }
    const milliseconds pause = backoff.Next(kReconnectBackoffMax);
    if (CauseOf(status) != ChannelCause::kCutOff || Clock::now() + pause >= deadline) return status;
    std::this_thread::sleep_for(pause);
    grpc::experimental::ChannelResetConnectionBackoff(channel.channel().get());
  }
}

}  // namespace

absl::StatusOr<ServiceStatus> GetStatus(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id, milliseconds timeout,
                                        bool with_ranks) {
  v1::StatusRequest message;
  message.set_ranks(with_ranks);
  message.set_run_id(ToUtf8(run_id));
  const auto answer =
      Ask<v1::Rendezvous>(*channel, timeout, &v1::Rendezvous::Stub::GetStatus, message);
  if (!answer.ok()) return answer.status();
  ServiceStatus found;
  found.software_version = Printable(answer->software_version());
  for (const v1::RunStatus& run : answer->runs()) found.runs.push_back(FromProto(run));
  return found;
}

absl::StatusOr<std::string> StopRun(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& run_id, const StopRequest& request,
                                    milliseconds timeout) {
  v1::StopRunRequest message;
  message.set_run_id(ToUtf8(run_id));
  message.set_by(ToUtf8(request.by));
  message.set_now(request.now);
  const auto answer = Ask<v1::Control>(*channel, timeout, &v1::Control::Stub::StopRun, message);
  if (!answer.ok()) return answer.status();
  return Printable(answer->sentence());
}

absl::StatusOr<std::string> DrainNode(const std::shared_ptr<ServiceChannel>& channel,
                                      const std::string& run_id, const DrainRequest& request,
                                      milliseconds timeout) {
  v1::DrainNodeRequest message;
  message.set_run_id(ToUtf8(run_id));
  message.set_by(ToUtf8(request.by));
  message.set_node(ToUtf8(request.node));
  message.set_force(request.force);
  message.set_at_next_round(request.at_next_round);
  message.set_dry_run(request.dry_run);
  const auto answer = Ask<v1::Control>(*channel, timeout, &v1::Control::Stub::DrainNode, message);
  if (!answer.ok()) return answer.status();
  return Printable(answer->sentence());
}

absl::StatusOr<std::string> Promote(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& by, bool force, milliseconds timeout) {
  v1::PromoteRequest message;
  message.set_by(ToUtf8(by));
  message.set_force(force);
  const auto answer = Ask<v1::Standby>(*channel, timeout, &v1::Standby::Stub::Promote, message);
  if (!answer.ok()) return answer.status();
  return Printable(answer->sentence());
}

absl::StatusOr<FaultReport> InjectFault(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id, const FaultRequest& request,
                                        milliseconds timeout) {
  v1::InjectFaultRequest message = ToProto(request);
  message.set_run_id(ToUtf8(run_id));
  const auto answer = Ask<v1::Control>(*channel, timeout, &v1::Control::Stub::InjectFault, message);
  if (!answer.ok()) return answer.status();
  FaultReport report{.done = true, .words = Printable(answer->sentence())};
  if (answer->has_step()) report.step = answer->step();
  if (answer->has_epoch()) report.epoch = answer->epoch();
  for (const std::string& line : answer->stack()) report.stack.push_back(Printable(line));
  return report;
}

absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        milliseconds timeout) {
  const grpc::Status status = Call(*channel, report, Clock::now() + timeout);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    if (const std::optional<absl::Status> reason = channel->FinalReason(status)) return *reason;
    const std::string words = ReasonText(status, channel->target());
    return CauseOf(status) == ChannelCause::kRefused ? absl::NotFoundError(words)
                                                     : absl::UnavailableError(words);
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        "no answer; the host is down or a firewall drops the packets");
  }
  return ToAbsl(status);
}

}  // namespace ddprun
