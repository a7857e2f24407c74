// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/session_service.h"

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/limits/limited_messages.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/streams/first_message_timer.h"
#include "rendezvous/streams/server_stream.h"
#include "rendezvous/streams/write_queue.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/peer_name.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

using Stream = ServerStream<v1::Report, v1::Directive>;

// One node's stream. The run holds it too, to push to it.
class SessionStream final : public Stream,
                            public DirectiveSink,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  SessionStream(RunRegistry& registry, PeerGuard& guard, CompletionThreads& threads)
      : Stream(threads),
        registry_(registry),
        guard_(guard),
        out_([this](const v1::Directive* message) { StartWrite(message); },
             [this] { Finish(grpc::Status::OK); }) {}

  void Begin() override {
    guard_.Called(context().peer());
    // At once: tells the client that the service is here, before the first directive.
    AddHeader(kServesHeader);
    StartSendInitialMetadata();
    first_message_.Begin(shared_from_this(), [](SessionStream& self) {
      self.Refuse(absl::DeadlineExceededError("the stream's first report did not come in time"));
    });
    StartRead(&report_);
  }

  // DirectiveSink
  std::string Address() override { return AddressOfPeer(context().peer()); }
  void Push(Directive directive) override { out_.Push(ToProto(directive)); }
  void End() override { out_.Close(); }
  void Flush() override { out_.Flush(); }

  // Stream. Reads come one after another; writes and reads at the same time.
  void OnReadDone(bool ok) override {
    const bool in_time = first_message_.Came();
    if (!ok) {
      if (place_) place_->run->Gone(place_->link, std::chrono::steady_clock::now());
      if (std::optional<absl::Status> refusal = TakeSizeRefusal()) {
        Push(Refused{*std::move(refusal)});
      }
      out_.Close();
      out_.Flush();
      return;
    }
    auto report = FromProto(report_);
    if (!in_time) {
      // The stream is being ended: reports no longer count.
    } else if (!report.ok()) {
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
  }

 private:
  void Enter(Join join) {
    // A node that hosts the service shares its process (local_session.h) and needs no stream.
    join.hosts_service = false;
    absl::Status status = guard_.CheckNode(context(), join.run_id, join.node_id.value);
    if (!status.ok()) {
      Refuse(std::move(status));
      return;
    }
    auto place = registry_.Admit(join, shared_from_this(), guard_.OriginOf(context()));
    if (!place.ok()) {
      Refuse(place.status());
      return;
    }
    place_ = *std::move(place);
    place_->run->Joined(place_->link, join, std::chrono::steady_clock::now());
  }

  void Refuse(absl::Status status) {
    if (!refused_.exchange(true)) {
      registry_.Refused(AddressOfPeer(context().peer()), status);
    }
    Push(Refused{std::move(status)});
    End();
    Flush();
  }

  RunRegistry& registry_;
  PeerGuard& guard_;
  FirstMessageTimer<SessionStream> first_message_;
  v1::Report report_;
  std::atomic<bool> refused_ = false;  // it may go on reporting, which is not told again
  WriteQueue<v1::Directive> out_;
  std::optional<RunRegistry::Place> place_;  // set by the first report, on the reading side only
};

grpc::ServerUnaryReactor* Answered(grpc::CallbackServerContext& context,
                                   const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace

void SessionService::Serve(CompletionThreads& threads) {
  const auto make = [this, &threads] {
    return std::make_shared<SessionStream>(registry_, guard_, threads);
  };
  for (const auto& queue : threads.queues()) {
    ServeCalls(*this, &SessionService::RequestSession, *queue, make);
  }
}

grpc::ServerUnaryReactor* SessionService::ReportLoss(grpc::CallbackServerContext* context,
                                                     const v1::LossReport* message,
                                                     v1::LossAnswer*) {
  return Answered(*context, TakeLoss(*context, FromProto(*message)));
}

grpc::ServerUnaryReactor* SessionService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::StatusRequest* request,
                                                    v1::StatusAnswer* answer) {
  // Cleaned and cut like the names in Join.
  const auto run_id =
      guard_.RunToAskAbout(*context, Printable(request->run_id().substr(0, kNameBytesMax + 1)));
  if (!run_id.ok()) return Answered(*context, run_id.status());
  const auto runs = registry_.Status(*run_id, std::chrono::steady_clock::now(), request->ranks());
  if (!runs.ok()) return Answered(*context, runs.status());
  answer->set_software_version(kSoftwareVersion);
  for (const RunStatus& run : *runs) *answer->add_runs() = ToProto(run);
  return Answered(*context, absl::OkStatus());
}

absl::Status SessionService::TakeLoss(const grpc::CallbackServerContext& context,
                                      const LossReport& report) {
  if (report.protocol_version != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the node speaks protocol ", report.protocol_version, ", the service speaks protocol ",
        kProtocolVersion, "; install the same ddprun on all nodes"));
  }
  absl::Status status = guard_.CheckNode(context, report.run_id, report.node_id.value);
  if (!status.ok()) return status;
  return registry_.Lost(report, std::chrono::steady_clock::now());
}

}  // namespace ddprun
