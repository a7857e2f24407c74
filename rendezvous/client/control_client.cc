// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/control_client.h"

#include "rendezvous/base/printable.h"
#include "rendezvous/wire/call_error.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {

using std::chrono::milliseconds;

absl::StatusOr<std::string> StopRun(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& run_id, const StopRequest& request,
                                    milliseconds timeout) {
  const auto stub = v1::Control::NewStub(channel->channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::StopRunRequest message;
  message.set_run_id(ToUtf8(run_id));
  message.set_by(ToUtf8(request.by));
  message.set_now(request.now);
  v1::StopRunAnswer answer;
  const grpc::Status status = stub->StopRun(&context, message, &answer);
  if (!status.ok()) return CallError(*channel, status, timeout);
  return Printable(answer.sentence());
}

absl::StatusOr<std::string> DrainNode(const std::shared_ptr<ServiceChannel>& channel,
                                      const std::string& run_id, const DrainRequest& request,
                                      milliseconds timeout) {
  const auto stub = v1::Control::NewStub(channel->channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::DrainNodeRequest message;
  message.set_run_id(ToUtf8(run_id));
  message.set_by(ToUtf8(request.by));
  message.set_node(ToUtf8(request.node));
  message.set_force(request.force);
  message.set_at_next_round(request.at_next_round);
  message.set_dry_run(request.dry_run);
  v1::DrainNodeAnswer answer;
  const grpc::Status status = stub->DrainNode(&context, message, &answer);
  if (!status.ok()) return CallError(*channel, status, timeout);
  return Printable(answer.sentence());
}

}  // namespace ddprun
