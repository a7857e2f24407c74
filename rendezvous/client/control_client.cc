// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/control_client.h"

#include "rendezvous/base/printable.h"
#include "rendezvous/wire/call_error.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// One call of `Service`'s `method`.
template <typename Service, typename Request, typename Answer>
absl::StatusOr<Answer> Ask(const ServiceChannel& channel, milliseconds timeout,
                           grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Answer*),
                           const Request& request) {
  const auto stub = Service::NewStub(channel.channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Answer answer;
  const grpc::Status status = ((*stub).*method)(&context, request, &answer);
  if (!status.ok()) return CallError(channel, status, timeout);
  return answer;
}

}  // namespace

absl::StatusOr<ServiceStatus> GetStatus(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id, milliseconds timeout) {
  v1::StatusRequest message;
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

}  // namespace ddprun
