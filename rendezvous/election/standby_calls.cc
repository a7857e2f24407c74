// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/standby_calls.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/journal/record_values.h"
#include "rendezvous/streams/batch_writer.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/peer_name.h"

namespace ddprun {
namespace {

v1::JournalCopy::Kind ToProto(CopyKind kind) {
  switch (kind) {
    case CopyKind::kRecords:
      return v1::JournalCopy::RECORDS;
    case CopyKind::kParts:
      return v1::JournalCopy::PARTS;
    case CopyKind::kSnapshotEnd:
      return v1::JournalCopy::SNAPSHOT_END;
    case CopyKind::kCounts:
      return v1::JournalCopy::COUNTS;
    case CopyKind::kLead:
      return v1::JournalCopy::LEAD;
  }
  return v1::JournalCopy::RECORDS;
}

}  // namespace

CopyKind KindOf(v1::JournalCopy::Kind kind) {
  for (const CopyKind one :
       {CopyKind::kParts, CopyKind::kSnapshotEnd, CopyKind::kCounts, CopyKind::kLead}) {
    if (ToProto(one) == kind) return one;
  }
  return CopyKind::kRecords;
}

// The stream to one copy. Owns itself until OnDone; the journal's peer holds it too, to wake it.
class StandbyCalls::Copy final : public grpc::ServerBidiReactor<v1::CopyReport, v1::JournalCopy>,
                                 public std::enable_shared_from_this<Copy> {
 public:
  Copy(grpc::CallbackServerContext& context, std::shared_ptr<CopiedJournal> journal,
       std::uint64_t term)
      : context_(context),
        journal_(std::move(journal)),
        term_(term),
        out_([this](v1::JournalCopy* message) { return Fill(message); },
             [this](const v1::JournalCopy* message) { StartWrite(message); },
             [this] { Finish(grpc::Status::OK); }) {}

  void Begin() {
    self_ = shared_from_this();
    const std::weak_ptr<Copy> weak = self_;
    copy_ = journal_->Attach({.name = NameOfGrpc(context_.peer()),
                              .on_work =
                                  [weak] {
                                    if (const auto self = weak.lock()) self->out_.Flush();
                                  },
                              .on_given_up =
                                  [weak] {
                                    if (const auto self = weak.lock()) self->Cancel();
                                  }});
    StartRead(&report_);
    out_.Flush();
    SetAlarm();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      out_.Abandon();
      out_.Flush();
      return;
    }
    journal_->Acknowledge(copy_, report_.record());
    StartRead(&report_);
  }

  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }

  void OnCancel() override {
    out_.Abandon();
    out_.Flush();
  }

  void OnDone() override {
    journal_->Detach(copy_);
    {
      absl::MutexLock lock(&mutex_);
      is_done_ = true;
    }
    self_.reset();
  }

 private:
  // The context is gone after OnDone.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    if (!is_done_) context_.TryCancel();
  }

  // A copy learns from these messages that the service lives, and from a pause that it has slept
  // itself.
  void SetAlarm() {
    absl::MutexLock lock(&mutex_);
    if (is_done_) return;
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + kCopyInterval,
                [weak = weak_from_this()](bool ok) {
                  const std::shared_ptr<Copy> self = weak.lock();
                  if (!ok || self == nullptr) return;
                  self->message_due_ = true;
                  self->out_.Flush();
                  self->SetAlarm();
                });
  }

  bool Fill(v1::JournalCopy* message) {
    if (values_.empty() && !TakePieces()) {
      if (!message_due_) return false;
      values_.emplace_back();
    }
    message_due_ = false;
    *message = std::move(values_.front());
    values_.pop_front();
    message->set_term(term_);
    return true;
  }

  bool TakePieces() {
    std::vector<CopyPiece> pieces = journal_->Take(copy_, kCopyMessageBytes);
    if (pieces.empty()) return false;
    const v1::JournalCopy::Kind kind = ToProto(pieces.back().kind);
    std::vector<std::string> bytes;
    for (const CopyPiece& piece : pieces) {
      if (piece.bytes != nullptr) bytes.push_back(*piece.bytes);
    }
    for (std::string& value : CutIntoValues(bytes, kCopyMessageBytes)) {
      values_.emplace_back().set_kind(kind);
      values_.back().set_value(std::move(value));
    }
    if (values_.empty()) values_.emplace_back().set_kind(kind);
    values_.back().set_record(pieces.back().record);
    return true;
  }

  grpc::CallbackServerContext& context_;
  const std::shared_ptr<CopiedJournal> journal_;
  const std::uint64_t term_;
  std::atomic<CopySet::CopyId> copy_ = 0;  // 0: it is being attached
  std::shared_ptr<Copy> self_;
  v1::CopyReport report_;
  std::atomic<bool> message_due_ = false;
  std::deque<v1::JournalCopy> values_;  // the writer's

  absl::Mutex mutex_;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);

  BatchWriter<v1::JournalCopy> out_;
};

grpc::ServerBidiReactor<v1::CopyReport, v1::JournalCopy>* StandbyCalls::CopyJournal(
    grpc::CallbackServerContext* context) {
  class Refusal final : public grpc::ServerBidiReactor<v1::CopyReport, v1::JournalCopy> {
   public:
    Refusal() { Finish({grpc::StatusCode::UNAVAILABLE, "this service stands by"}); }
    void OnDone() override { delete this; }
  };
  std::shared_ptr<CopiedJournal> journal = role_.journal();
  if (journal == nullptr) return new Refusal;
  const auto copy = std::make_shared<Copy>(*context, std::move(journal), role_.standing().term);
  copy->Begin();
  role_.OnCopy();
  return copy.get();
}

grpc::ServerUnaryReactor* StandbyCalls::Promote(grpc::CallbackServerContext* context,
                                                const v1::PromoteRequest* request,
                                                v1::PromoteAnswer* answer) {
  auto* const reactor = context->DefaultReactor();
  const auto sentence =
      role_.Promote(absl::StrCat(Printable(request->by().substr(0, kNameBytesMax)), " (",
                                 AddressOfPeer(context->peer()), ")"),
                    request->force());
  if (sentence.ok()) answer->set_sentence(*sentence);
  reactor->Finish(ToGrpc(sentence.status()));
  return reactor;
}

grpc::ServerUnaryReactor* StandbyCalls::GetStanding(grpc::CallbackServerContext* context,
                                                    const v1::StandingRequest* /*request*/,
                                                    v1::Standing* answer) {
  auto* const reactor = context->DefaultReactor();
  const StandbyRole::Standing standing = role_.standing();
  answer->set_term(standing.term);
  answer->set_leads(standing.leads);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ddprun
