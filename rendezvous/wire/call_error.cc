// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/call_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/printable.h"

namespace ddprun {

absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout) {
  if (const auto reason = channel.FinalReason(status)) return *reason;
  const std::string service = absl::StrCat("the rendezvous service at ", channel.target());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(
          absl::StrCat(service, " is not reached: ", ReasonInWords(status, channel.target())));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat(
          service, " did not answer within ", std::chrono::duration<double>(timeout).count(),
          " s; the host is down, or a firewall drops the packets"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::FailedPreconditionError(absl::StrCat(
          "what answers at ", channel.target(),
          " does not know this question; install the same ddprun there, or check the address"));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          Printable(status.error_message()));
  }
}

}  // namespace ddprun
