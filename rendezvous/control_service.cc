// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/control_service.h"

#include <chrono>
#include <string>

#include "rendezvous/limits.h"
#include "rendezvous/printable.h"

namespace ddprun {
namespace {

// Names end up in sentences on everybody's terminal; one that is too long is nobody's.
std::string Name(const std::string& text) { return Printable(text.substr(0, kNameBytesMax)); }

std::string Asker(const std::string& by) { return by.empty() ? "somewhere" : Name(by); }

// What was asked for is done, or the sentence says why it is not.
template <typename Message>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                 const absl::StatusOr<std::string>& sentence, Message& answer) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  if (sentence.ok()) {
    answer.set_sentence(*sentence);
    reactor->Finish(grpc::Status::OK);
  } else {
    reactor->Finish(grpc::Status(static_cast<grpc::StatusCode>(sentence.status().code()),
                                 std::string(sentence.status().message())));
  }
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::StopRun(grpc::CallbackServerContext* context,
                                                  const v1::StopRunRequest* request,
                                                  v1::StopRunAnswer* answer) {
  return Answer(
      *context,
      registry_.Stop(Name(request->run_id()), {.by = Asker(request->by()), .now = request->now()},
                     std::chrono::steady_clock::now()),
      *answer);
}

grpc::ServerUnaryReactor* ControlService::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request,
                                                    v1::DrainNodeAnswer* answer) {
  const DrainRequest drain = {.by = Asker(request->by()),
                              .node = Name(request->node()),
                              .force = request->force(),
                              .at_next_round = request->at_next_round(),
                              .dry_run = request->dry_run()};
  return Answer(*context,
                registry_.Drain(Name(request->run_id()), drain, std::chrono::steady_clock::now()),
                *answer);
}

}  // namespace ddprun
