// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/status_client.h"

#include "rendezvous/base/printable.h"
#include "rendezvous/wire/call_error.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/status_convert.h"

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
  if (!status.ok()) return CallError(*channel, status, timeout);
  ServiceStatus found;
  found.software_version = Printable(answer.software_version());
  for (const v1::RunStatus& run : answer.runs()) found.runs.push_back(FromProto(run));
  return found;
}

}  // namespace ddprun
