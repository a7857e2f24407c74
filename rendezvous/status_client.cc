// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/status_client.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "rendezvous/convert.h"
#include "rendezvous/grpc_channel.h"
#include "rendezvous/printable.h"
#include "rendezvous/status_convert.h"

namespace ddprun {

absl::StatusOr<ServiceStatus> GetStatus(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id,
                                        std::chrono::milliseconds timeout) {
  const auto stub = v1::Rendezvous::NewStub(channel->channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::StatusRequest request;
  request.set_run_id(ToUtf8(run_id));
  v1::StatusAnswer answer;
  const grpc::Status status = stub->GetStatus(&context, request, &answer);
  if (!status.ok()) {
    if (const auto reason = channel->FinalReason(status)) return *reason;
    const std::string service = absl::StrCat("the rendezvous service at ", channel->target());
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return absl::UnavailableError(
            absl::StrCat(service, " is not reached: ", ReasonInWords(status, channel->target())));
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return absl::DeadlineExceededError(absl::StrCat(
            service, " did not answer within ", std::chrono::duration<double>(timeout).count(),
            " s; the host is down, or a firewall drops the packets"));
      case grpc::StatusCode::UNIMPLEMENTED:
        return absl::FailedPreconditionError(absl::StrCat(
            "what answers at ", channel->target(),
            " does not know this question; install the same ddprun there, or check the address"));
      default:
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                            Printable(status.error_message()));
    }
  }
  ServiceStatus found;
  found.software_version = Printable(answer.software_version());
  for (const v1::RunStatus& run : answer.runs()) found.runs.push_back(FromProto(run));
  return found;
}

}  // namespace ddprun
