// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/watch_service.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/streams/batch_writer.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/peer_name.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {

// Owns itself until OnDone; its run holds it too, to wake it. News stay in LogSubscriptions until
// they can be written, so a slow reader costs no memory here.
class WatchService::Stream final : public grpc::ServerWriteReactor<v1::RunNews>,
                                   public NewsSink,
                                   public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(WatchService& service)
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
    Wake();
  }

  void Refuse(const absl::Status& status) {
    self_ = shared_from_this();
    EndWith(status);
  }

  // NewsSink
  void Wake() override {
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
    Wake();
  }

  void OnWriteDone(bool ok) override {
    out_.OnWriteDone(ok);
    if (over_) Wake();
  }

  // The caller is gone.
  void OnCancel() override {
    Leave();
    out_.Abandon();
    out_.Flush();
  }

  void OnDone() override {
    Leave();
    service_.Ended();
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

  WatchService& service_;
  std::shared_ptr<Stream> self_;
  std::atomic<bool> over_{false};
  std::atomic<bool> ending_{false};

  absl::Mutex mutex_;
  std::shared_ptr<Run> run_ ABSL_GUARDED_BY(mutex_);  // until nobody watches any more
  WatchId watch_ ABSL_GUARDED_BY(mutex_){};
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  BatchWriter<v1::RunNews> out_;
};

grpc::ServerWriteReactor<v1::RunNews>* WatchService::Watch(
    const std::string& peer, const v1::WatchRunRequest& request,
    const absl::StatusOr<std::string>& run_id) {
  auto stream = std::make_shared<Stream>(*this);
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
    streams_.push_back(stream);
    ++count_;
  }
  absl::StatusOr<std::shared_ptr<Run>> run =
      run_id.ok() ? registry_.FindForOperator(*run_id) : run_id.status();
  if (run.ok()) {
    const std::string name = NameOfGrpc(peer);
    stream->Begin(*std::move(run), FromProto(request), name.substr(0, name.find(' ')));
  } else {
    stream->Refuse(run.status());
  }
  return stream.get();
}

void WatchService::End(std::chrono::milliseconds timeout) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::weak_ptr<Stream>& weak : streams_) {
      if (auto stream = weak.lock()) streams.push_back(std::move(stream));
    }
  }
  for (const auto& stream : streams) stream->End();
  streams.clear();
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &WatchService::NobodyIsLeft),
                          absl::FromChrono(timeout));
}

void WatchService::Ended() {
  absl::MutexLock lock(&mutex_);
  --count_;
}

}  // namespace ddprun
