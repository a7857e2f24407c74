// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/control_service.h"

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/peer_name.h"

namespace ddprun {
namespace {

// Names appear in sentences on terminals, so they are cleaned and cut; a longer name matches none.
std::string Name(const std::string& text) { return Printable(text.substr(0, kNameBytesMax)); }

// The host that the caller claims, and the address that it really has.
std::string Asker(const std::string& by, const grpc::CallbackServerContext& context) {
  const std::string name = by.empty() ? "somewhere" : Name(by);
  const std::string address = AddressOfPeer(context.peer());
  return address.empty() ? name : absl::StrCat(name, " (", address, ")");
}

template <typename Message>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                 const absl::StatusOr<std::string>& sentence, Message& answer) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  if (sentence.ok()) answer.set_sentence(*sentence);
  reactor->Finish(ToGrpc(sentence.status()));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::StopRun(grpc::CallbackServerContext* context,
                                                  const v1::StopRunRequest* request,
                                                  v1::StopRunAnswer* answer) {
  const auto run_id = guard_.RunToAskAbout(*context, Name(request->run_id()));
  if (!run_id.ok()) return Answer(*context, run_id, *answer);
  const StopRequest stop = {.by = Asker(request->by(), *context), .now = request->now()};
  return Answer(*context, registry_.Stop(*run_id, stop, std::chrono::steady_clock::now()), *answer);
}

grpc::ServerUnaryReactor* ControlService::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request,
                                                    v1::DrainNodeAnswer* answer) {
  const auto run_id = guard_.RunToAskAbout(*context, Name(request->run_id()));
  if (!run_id.ok()) return Answer(*context, run_id, *answer);
  const DrainRequest drain = {.by = Asker(request->by(), *context),
                              .node = Name(request->node()),
                              .force = request->force(),
                              .at_next_round = request->at_next_round(),
                              .dry_run = request->dry_run()};
  return Answer(*context, registry_.Drain(*run_id, drain, std::chrono::steady_clock::now()),
                *answer);
}

grpc::ServerWriteReactor<v1::RunNews>* ControlService::WatchRun(
    grpc::CallbackServerContext* context, const v1::WatchRunRequest* request) {
  return watches_.Watch(context->peer(), *request,
                        guard_.RunToAskAbout(*context, Name(request->run_id())));
}

}  // namespace ddprun
