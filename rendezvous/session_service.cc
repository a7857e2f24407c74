// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/session_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/convert.h"
#include "rendezvous/write_queue.h"

namespace ddprun {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::Report, v1::Directive>;

// One node's stream. It owns itself until OnDone; the run holds it too, to push to it.
class SessionStream final : public Reactor,
                            public DirectiveSink,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  explicit SessionStream(RunRegistry& registry)
      : registry_(registry),
        out_([this](const v1::Directive* message) { StartWrite(message); },
             [this] { Finish(grpc::Status::OK); }) {}

  void Begin() {
    self_ = shared_from_this();
    // At once: it tells the client that a service is here, before there is anything to say.
    StartSendInitialMetadata();
    StartRead(&report_);
  }

  // DirectiveSink
  void Push(Directive directive) override { out_.Push(ToProto(directive)); }
  void End() override { out_.Close(); }
  void Flush() override { out_.Flush(); }

  // Reactor. Reads come one after another; writes and reads at the same time.
  void OnReadDone(bool ok) override {
    if (!ok) {
      if (place_) place_->run->Gone(place_->link, std::chrono::steady_clock::now());
      out_.Close();
      out_.Flush();
      return;
    }
    auto report = FromProto(report_);
    if (!report.ok()) {
      Refuse(report.status());
    } else if (place_) {
      place_->run->Reported(place_->link, *report, std::chrono::steady_clock::now());
    } else if (const auto* join = std::get_if<Join>(&*report)) {
      Enter(*join);
    } else {
      Refuse(absl::InvalidArgumentError("the first report of a stream must be Join"));
    }
    StartRead(&report_);
  }

  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }

  void OnDone() override {
    if (place_) registry_.Closed(*place_);
    self_.reset();
  }

 private:
  void Enter(const Join& join) {
    auto place = registry_.Admit(join.run_id, shared_from_this());
    if (!place.ok()) {
      Refuse(place.status());
      return;
    }
    place_ = *std::move(place);
    place_->run->Joined(place_->link, join, std::chrono::steady_clock::now());
  }

  void Refuse(absl::Status status) {
    Push(Refused{std::move(status)});
    End();
    Flush();
  }

  RunRegistry& registry_;
  std::shared_ptr<SessionStream> self_;
  v1::Report report_;
  WriteQueue<v1::Directive> out_;
  std::optional<RunRegistry::Place> place_;  // set by the first report, on the reading side only
};

}  // namespace

grpc::ServerBidiReactor<v1::Report, v1::Directive>* SessionService::Session(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<SessionStream>(registry_);
  stream->Begin();
  return stream.get();
}

}  // namespace ddprun
