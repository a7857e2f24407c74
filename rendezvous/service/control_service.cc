// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/control_service.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/streams/batch_writer.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/peer_name.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

// Names appear in sentences on terminals, so they are cleaned and cut; a longer name matches none.
std::string Name(const std::string& text) { return Printable(text.substr(0, kNameBytesMax)); }

// The host that the caller claims, and the address that it really has.
std::string RequesterName(const std::string& by, const grpc::CallbackServerContext& context) {
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
  const StopRequest stop = {.by = RequesterName(request->by(), *context), .now = request->now()};
  return Answer(*context, registry_.Stop(*run_id, stop, std::chrono::steady_clock::now()), *answer);
}

grpc::ServerUnaryReactor* ControlService::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request,
                                                    v1::DrainNodeAnswer* answer) {
  const auto run_id = guard_.RunToAskAbout(*context, Name(request->run_id()));
  if (!run_id.ok()) return Answer(*context, run_id, *answer);
  const DrainRequest drain = {.by = RequesterName(request->by(), *context),
                              .node = Name(request->node()),
                              .force = request->force(),
                              .at_next_round = request->at_next_round(),
                              .dry_run = request->dry_run()};
  return Answer(*context, registry_.Drain(*run_id, drain, std::chrono::steady_clock::now()),
                *answer);
}

// ---- Faults

// Owns itself until OnDone. The run may answer later than the caller waits.
class ControlService::FaultCall final : public grpc::ServerUnaryReactor,
                                        public std::enable_shared_from_this<FaultCall> {
 public:
  explicit FaultCall(v1::InjectFaultAnswer& answer) : answer_(answer) {}

  void Begin() { self_ = shared_from_this(); }

  void Answer(const absl::StatusOr<FaultReport>& report) {
    if (answered_.exchange(true)) return;
    if (report.ok()) {
      answer_.set_sentence(report->words);
      if (report->step >= 0) answer_.set_step(report->step);
      if (report->epoch >= 0) answer_.set_epoch(report->epoch);
      for (const std::string& line : report->stack) answer_.add_stack(ToUtf8(line));
    }
    Finish(ToGrpc(report.status()));
  }

  // The fault is the end of this process.
  void AnswerAndKill() {
    kills_ = true;
    Answer(FaultReport{.done = true, .words = "SIGKILL to the rendezvous service"});
  }

  void OnCancel() override { Answer(absl::CancelledError("the caller is gone")); }

  void OnDone() override {
    if (kills_) kill(getpid(), SIGKILL);
    self_.reset();
  }

 private:
  v1::InjectFaultAnswer& answer_;  // valid until Finish()
  std::atomic<bool> answered_{false};
  bool kills_ = false;
  std::shared_ptr<FaultCall> self_;
};

grpc::ServerUnaryReactor* ControlService::InjectFault(grpc::CallbackServerContext* context,
                                                      const v1::InjectFaultRequest* request,
                                                      v1::InjectFaultAnswer* answer) {
  const auto call = std::make_shared<FaultCall>(*answer);
  call->Begin();
  FaultRequest fault = FromProto(*request);
  if (fault.kind != FaultKind::kStacks && !context->auth_context()->IsPeerAuthenticated()) {
    call->Answer(absl::FailedPreconditionError(
        "chaos needs a run with a secret, and anybody could ask this service for it; start all "
        "nodes without --insecure, and a ddprun-rendezvous at an address instead of a unix "
        "socket"));
    return call.get();
  }
  auto run_id = guard_.RunToAskAbout(*context, Name(request->run_id()));
  if (absl::Status status = guard_.CheckOperator(*context, fault.kind == FaultKind::kService);
      run_id.ok() && !status.ok()) {
    run_id = std::move(status);
  }
  const auto run = run_id.ok() ? registry_.FindForOperator(*run_id) : run_id.status();
  if (!run.ok()) {
    call->Answer(run.status());
    return call.get();
  }
  fault.by = absl::StrCat("ddpctl from ", RequesterName(request->by(), *context));
  fault.node = Name(request->node());
  if (fault.kind != FaultKind::kService) {
    (*run)->Inject(fault,
                   [call](const absl::StatusOr<FaultReport>& report) { call->Answer(report); });
  } else if (!registry_.durable()) {
    call->Answer(absl::FailedPreconditionError(
        "this rendezvous service has no journal, and its runs would end with it; start a "
        "ddprun-rendezvous with --journal"));
  } else {
    (*run)->NoteFault(absl::StrCat("SIGKILL to the rendezvous service, asked by ", fault.by));
    call->AnswerAndKill();
  }
  return call.get();
}

// ---- Watches

// Owns itself until OnDone; its run holds it too, to wake it. News stay in LogSubscriptions until
// they can be written, so a slow reader costs no memory here.
class ControlService::Watch final : public grpc::ServerWriteReactor<v1::RunNews>,
                                    public NewsSink,
                                    public std::enable_shared_from_this<Watch> {
 public:
  explicit Watch(ControlService& service)
      : service_(service),
        out_([this](v1::RunNews* message) { return Fill(message); },
             [this](const v1::RunNews* message) { StartWrite(message); },
             [this] { Finish(EndStatus()); }) {}

  void Begin(std::shared_ptr<Run> run, const RunQuestion& question, const std::string& from) {
    self_ = shared_from_this();
    StartSendInitialMetadata();
    absl::StatusOr<WatchId> watch = run->OpenWatch(shared_from_this(), question, from);
    if (!watch.ok()) return Refuse(watch.status());
    {
      absl::MutexLock lock(&mutex_);
      run_ = std::move(run);
      watch_ = *watch;
    }
    Flush();
  }

  void Refuse(const absl::Status& status) {
    self_ = shared_from_this();
    EndWith(status);
  }

  // NewsSink
  void Flush() override {
    out_.Flush();
    if (!over_) return;
    out_.Close();
    out_.Flush();
  }

  void Replaced(absl::Status why) override {
    Leave();
    EndWith(why);
  }

  // The service ends.
  void End() {
    ending_ = true;
    Flush();
  }

  void OnWriteDone(bool ok) override {
    out_.OnWriteDone(ok);
    if (over_) Flush();
  }

  // The caller is gone.
  void OnCancel() override {
    Leave();
    out_.Abandon();
    out_.Flush();
  }

  void OnDone() override {
    Leave();
    service_.WatchEnded();
    self_.reset();
  }

 private:
  void EndWith(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      status_ = ToGrpc(status);
    }
    out_.Close();
    out_.Flush();
  }

  grpc::Status EndStatus() {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  bool Fill(v1::RunNews* message) {
    std::shared_ptr<Run> run;
    WatchId watch{};
    {
      absl::MutexLock lock(&mutex_);
      run = run_;
      watch = watch_;
    }
    if (run == nullptr) return false;
    bool over = false;
    std::optional<RunNews> news = run->TakeNews(watch, over);
    if (!news.has_value()) {
      over_ = over || ending_;
      return false;
    }
    *message = ToProto(*news);
    return true;
  }

  void Leave() {
    std::shared_ptr<Run> run;
    WatchId watch{};
    {
      absl::MutexLock lock(&mutex_);
      run = std::exchange(run_, nullptr);
      watch = watch_;
    }
    if (run != nullptr) run->CloseWatch(watch);
  }

  ControlService& service_;
  std::shared_ptr<Watch> self_;
  std::atomic<bool> over_{false};
  std::atomic<bool> ending_{false};

  absl::Mutex mutex_;
  std::shared_ptr<Run> run_ ABSL_GUARDED_BY(mutex_);  // until the watch ends
  WatchId watch_ ABSL_GUARDED_BY(mutex_){};
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  BatchWriter<v1::RunNews> out_;
};

grpc::ServerWriteReactor<v1::RunNews>* ControlService::WatchRun(
    grpc::CallbackServerContext* context, const v1::WatchRunRequest* request) {
  auto watch = std::make_shared<Watch>(*this);
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(watches_, [](const auto& weak) { return weak.expired(); });
    watches_.push_back(watch);
    ++watch_count_;
  }
  const auto run_id = guard_.RunToAskAbout(*context, Name(request->run_id()));
  absl::StatusOr<std::shared_ptr<Run>> run =
      run_id.ok() ? registry_.FindForOperator(*run_id) : run_id.status();
  if (run.ok()) {
    const std::string name = NameOfGrpc(context->peer());
    watch->Begin(*std::move(run), FromProto(*request), name.substr(0, name.find(' ')));
  } else {
    watch->Refuse(run.status());
  }
  return watch.get();
}

void ControlService::EndWatches(std::chrono::milliseconds timeout) {
  std::vector<std::shared_ptr<Watch>> watches;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::weak_ptr<Watch>& weak : watches_) {
      if (auto watch = weak.lock()) watches.push_back(std::move(watch));
    }
  }
  for (const auto& watch : watches) watch->End();
  watches.clear();
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &ControlService::HasNoWatch),
                          absl::FromChrono(timeout));
}

void ControlService::WatchEnded() {
  absl::MutexLock lock(&mutex_);
  --watch_count_;
}

}  // namespace ddprun
