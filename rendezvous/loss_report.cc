// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/loss_report.h"

#include <optional>

#include "rendezvous/convert.h"
#include "rendezvous/grpc_channel.h"

namespace ddprun {

absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        std::chrono::milliseconds timeout) {
  const auto stub = v1::Rendezvous::NewStub(channel->channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::LossAnswer answer;
  const grpc::Status status = stub->ReportLoss(&context, ToProto(report), &answer);
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
