// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/report_node_loss.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "rendezvous/base/limits.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/session_convert.h"

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;

// A call that is cut off may have met a service that is ending. A retry then finds that nothing
// listens any more, which differs from a service that rejects this node.
grpc::Status Call(const ServiceChannel& channel, const LossReport& report,
                  Clock::time_point deadline) {
  const auto stub = v1::Rendezvous::NewStub(channel.channel());
  std::chrono::milliseconds pause = kConnectBackoffMin;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + (deadline - Clock::now()));
    v1::LossAnswer answer;
    const grpc::Status status = stub->ReportLoss(&context, ToProto(report), &answer);
    const bool cut_off = status.error_code() == grpc::StatusCode::UNAVAILABLE && IsCutOff(status);
    if (!cut_off || Clock::now() + pause >= deadline) return status;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::milliseconds>(2 * pause, kReconnectBackoffMax);
    grpc::experimental::ChannelResetConnectionBackoff(channel.channel().get());
  }
}

}  // namespace

absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        std::chrono::milliseconds timeout) {
  const grpc::Status status = Call(*channel, report, Clock::now() + timeout);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    const std::optional<absl::Status> reason = channel->FinalReason(status);
    return reason ? *reason : absl::UnavailableError(ReasonInWords(status, channel->target()));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        "no answer; the host is down or a firewall drops the packets");
  }
  return ToAbsl(status);
}

}  // namespace ddprun
