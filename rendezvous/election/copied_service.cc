// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/copied_service.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/election/copied_journal.h"
#include "rendezvous/election/held_copy.h"
#include "rendezvous/election/standby_calls.h"
#include "rendezvous/election/standby_server.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The server owns its journal; the streams to the copies use it too.
class SharedJournal final : public Journal {
 public:
  explicit SharedJournal(std::shared_ptr<Journal> journal) : journal_(std::move(journal)) {}
  std::uint64_t Append(std::string record) override { return journal_->Append(std::move(record)); }
  absl::Status Commit(std::uint64_t record) override { return journal_->Commit(record); }
  bool WantsSnapshot() override { return journal_->WantsSnapshot(); }
  void Snapshot(std::vector<std::string> parts) override { journal_->Snapshot(std::move(parts)); }
  JournalReport Report() override { return journal_->Report(); }

 private:
  const std::shared_ptr<Journal> journal_;
};

CopyMessage FromProto(v1::JournalCopy& message) {
  return {.kind = KindOf(message.kind()),
          .value = std::move(*message.mutable_value()),
          .record = message.record(),
          .term = message.term()};
}

// Another service of the list.
struct Other {
  std::string target;
  std::shared_ptr<grpc::Channel> channel;
};

class CopiedService final : public ServiceReplica, public StandbyRole {
 public:
  CopiedService(CopiedServiceOptions options, ListeningSocket socket, std::string target)
      : ServiceReplica(std::move(socket), std::move(target), options.callbacks),
        options_(std::move(options)),
        calls_(*this),
        thread_([this] { Run(); }) {}

  ~CopiedService() override {
    {
      Lock lock(mutex_);
      stopping_ = true;
      if (call_ != nullptr) call_->TryCancel();
    }
    changed_.notify_all();
    thread_.join();
  }

  // StandbyRole
  Standing standing() override {
    Lock lock(mutex_);
    return {journal_ != nullptr ? term_ : held_.term(), leads_};
  }
  std::shared_ptr<CopiedJournal> journal() override {
    Lock lock(mutex_);
    return leads_ ? journal_ : nullptr;
  }
  void OnCopy() override {
    if (const auto server = Server()) server->CheckJournal();
  }
  absl::StatusOr<std::string> Promote(const std::string& by, bool force) override;

 private:
  void Run();
  absl::Status StandBy();
  std::optional<Other> FindLeader();
  Standing Ask(const Other& other);
  void Follow(const Other& leader);
  bool MayLead();
  absl::Status Lead();
  void WaitForEndOfLead();
  void EndLead(const absl::Status& why);
  void HandOver(CopiedJournal& journal, bool has_runs);

  const CopiedServiceOptions options_;
  StandbyCalls calls_;
  // The thread's.
  std::vector<Other> others_;

  // Guarded by mutex_.
  HeldCopy held_;                   // of another service's journal
  std::uint64_t term_ = 0;          // of its own journal, which it writes or has written
  std::uint64_t highest_term_ = 0;  // that was seen anywhere
  std::string leader_;              // whose journal it copies now; empty: none
  bool promoted_ = false;           // a person, or the last leader, has said so
  grpc::ClientContext* call_ = nullptr;
  std::optional<absl::Status> end_of_lead_;
  bool leads_ = false;
  std::unique_ptr<StandbyServer> standby_;  // while it does not lead
  std::shared_ptr<CopiedJournal> journal_;  // while it leads

  std::thread thread_;  // last: it uses all of the above
};

// ---- What a person says

absl::StatusOr<std::string> CopiedService::Promote(const std::string& by, bool force) {
  std::string sentence;
  {
    Lock lock(mutex_);
    if (journal_ != nullptr || promoted_)
      return absl::FailedPreconditionError(
          absl::StrCat("the service at ", target_, " leads already"));
    if (!leader_.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the service at ", target_, " copies the journal of the one at ", leader_,
                       ", which leads; end that one (`ddpctl drain` its node), or take its machine "
                       "off the network, and ask again"));
    }
    if (held_.term() == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the service at ", target_, " has no copy of the run's journal; promote another one of ",
          absl::StrJoin(options_.services, ", ")));
    }
    if (!held_.counts() && !force) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the copy at ", target_,
          " may lack what was decided last: the service that led had gone on without it; promote "
          "another one of ",
          absl::StrJoin(options_.services, ", "), ", or this one with --force"));
    }
    promoted_ = true;
    const auto ago =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - held_.last_heard());
    sentence = absl::StrCat("the service at ", target_,
                            " leads from now on; the one before was heard ", ago.count(),
                            " s ago, and must not come back to the network with nodes of its own");
  }
  changed_.notify_all();
  callbacks_.on_note(absl::StrCat("was told to lead by ", by));
  return sentence;
}

// ---- The thread

void CopiedService::Run() {
  for (std::size_t i = 0; i < options_.services.size(); ++i) {
    if (i == options_.own) continue;
    const std::string& target = options_.services[i];
    const std::string host = target.substr(0, target.rfind(':'));
    others_.push_back(
        {target, MakeChannel(target, options_.node_credentials, host, ChannelPatience::kShort)});
  }
  while (!IsStopping()) {
    absl::Status status = StandBy();
    if (status.ok()) {
      if (const auto leader = FindLeader()) {
        Follow(*leader);
        continue;
      }
      if (MayLead()) {
        status = Lead();
      } else {
        Lock lock(mutex_);
        changed_.wait_for(lock, kCopyInterval, [this] { return stopping_ || promoted_; });
      }
    }
    if (!status.ok() && !IsStopping()) return callbacks_.on_end(status);
  }
}

absl::Status CopiedService::StandBy() {
  {
    Lock lock(mutex_);
    if (standby_ != nullptr) return absl::OkStatus();
  }
  auto socket = Share(socket_);
  if (!socket.ok()) return socket.status();
  // Nodes that come while a leader is known are sent on: it may be that only they have lost it.
  auto standby = StandbyServer::Start(
      *std::move(socket), options_.server.credentials,
      [this] {
        Lock lock(mutex_);
        if (standby_ != nullptr && !leader_.empty()) standby_->SendAway(leader_);
      },
      &calls_);
  if (!standby.ok()) return standby.status();
  Lock lock(mutex_);
  standby_ = *std::move(standby);
  return absl::OkStatus();
}

// The service that leads with the highest term, if this one knows of no higher one.
std::optional<Other> CopiedService::FindLeader() {
  std::optional<Other> leader;
  std::uint64_t term = 0;
  for (const Other& other : others_) {
    if (IsStopping()) return std::nullopt;
    const Standing standing = Ask(other);
    Lock lock(mutex_);
    highest_term_ = std::max(highest_term_, standing.term);
    if (!standing.leads || standing.term <= term) continue;
    term = standing.term;
    leader = other;
  }
  Lock lock(mutex_);
  if (term < highest_term_) leader.reset();
  return leader;
}

StandbyRole::Standing CopiedService::Ask(const Other& other) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLeaderProbeTimeout);
  grpc::experimental::ChannelResetConnectionBackoff(other.channel.get());
  v1::Standing answer;
  const auto stub = v1::Standby::NewStub(other.channel);
  if (!stub->GetStanding(&context, {}, &answer).ok()) return {};
  return {answer.term(), answer.leads()};
}

void CopiedService::Follow(const Other& leader) {
  grpc::ClientContext context;
  {
    Lock lock(mutex_);
    if (stopping_) return;
    call_ = &context;
    leader_ = leader.target;
    promoted_ = false;
    held_.OnConnection();
    if (standby_ != nullptr) standby_->SendAway(leader.target);
  }
  Note(absl::StrCat("stands by with a copy: the service at ", leader.target, " leads"));
  const auto stream = v1::Standby::NewStub(leader.channel)->CopyJournal(&context);
  v1::JournalCopy message;
  bool is_to_lead = false;
  bool goes_on = true;
  while (goes_on && stream->Read(&message)) {
    const CopyMessage copy = FromProto(message);
    absl::StatusOr<std::optional<std::uint64_t>> acknowledge;
    {
      Lock lock(mutex_);
      acknowledge = held_.Add(copy, Clock::now());
      highest_term_ = std::max(highest_term_, copy.term);
    }
    is_to_lead = copy.kind == CopyKind::kLead;
    goes_on = acknowledge.ok() && !is_to_lead;
    if (!goes_on) context.TryCancel();
    if (!acknowledge.ok() || !acknowledge->has_value()) continue;
    v1::CopyReport report;
    report.set_record(**acknowledge);
    goes_on = stream->Write(report);
  }
  const grpc::Status status = stream->Finish();
  Lock lock(mutex_);
  call_ = nullptr;
  leader_.clear();
  if (is_to_lead) {
    promoted_ = !stopping_;
  } else if (status.error_code() != grpc::StatusCode::UNAVAILABLE) {
    held_.GivenUp();
  }
  if (stopping_ || promoted_) return;
  lock.unlock();
  Note(absl::StrCat("has lost the service at ", leader.target,
                    ", and waits for it, or for a person: `ddpctl promote ",
                    options_.services[options_.own],
                    "` makes this one lead, if the other one is gone for good"));
}

// At a run's begin the first of the list leads, unless another one has a copy: then this is a
// process that was started again.
bool CopiedService::MayLead() {
  Lock lock(mutex_);
  return !stopping_ && (promoted_ || (options_.own == 0 && highest_term_ == 0));
}

absl::Status CopiedService::Lead() {
  auto socket = Share(socket_);
  if (!socket.ok()) return socket.status();
  std::shared_ptr<CopiedJournal> journal;
  {
    Lock lock(mutex_);
    promoted_ = false;
    // Two services that were promoted at the same time have different terms.
    term_ =
        (std::max(highest_term_, held_.term()) / kServicesMax + 1) * kServicesMax + options_.own;
    highest_term_ = term_;
    end_of_lead_.reset();
    journal = std::make_shared<CopiedJournal>(
        held_.term() == 0, [this](const std::string& sentence) { callbacks_.on_note(sentence); });
  }
  RendezvousServer::Options options{.address = options_.server.address,
                                    .port = socket_.port,
                                    .credentials = options_.server.credentials,
                                    .default_run_id = options_.server.default_run_id,
                                    .watcher = options_.server.watcher,
                                    .socket = *std::move(socket),
                                    .another_service = &calls_};
  options.journal = {
      .open = [&](const JournalReplay& replay) -> absl::StatusOr<std::unique_ptr<Journal>> {
        Lock lock(mutex_);
        if (absl::Status status = held_.Replay(replay); !status.ok()) return status;
        return std::make_unique<SharedJournal>(journal);
      },
      .on_failure = [this](const absl::Status& why) { EndLead(why); }};
  auto server = RendezvousServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  // The sessions that it holds come back, to the server.
  std::unique_ptr<StandbyServer> standby;
  {
    Lock lock(mutex_);
    held_ = HeldCopy();
    leads_ = true;
    journal_ = journal;
    server_ = *std::move(server);
    standby = std::move(standby_);
  }
  standby.reset();
  Note("leads");
  WaitForEndOfLead();
  const std::vector<RunStatus> runs = Status();
  HandOver(*journal, !runs.empty());
  std::shared_ptr<RendezvousServer> served;
  {
    Lock lock(mutex_);
    journal_.reset();
    served = std::move(server_);
  }
  return absl::OkStatus();
}

// A service with a higher term was promoted while this one could not be reached.
void CopiedService::WaitForEndOfLead() {
  while (true) {
    {
      Lock lock(mutex_);
      changed_.wait_for(lock, kCopyInterval,
                        [this] { return stopping_ || end_of_lead_.has_value(); });
      if (stopping_ || end_of_lead_.has_value()) return;
    }
    FindLeader();
    Lock lock(mutex_);
    if (highest_term_ <= term_) continue;
    lock.unlock();
    Note("no longer leads: another service was promoted meanwhile");
    return;
  }
}

void CopiedService::EndLead(const absl::Status& why) {
  {
    Lock lock(mutex_);
    if (!end_of_lead_) end_of_lead_ = why;
  }
  changed_.notify_all();
}

void CopiedService::HandOver(CopiedJournal& journal, bool has_runs) {
  journal.Close(absl::CancelledError("this service no longer leads"));
  {
    Lock lock(mutex_);
    leads_ = false;
    if (highest_term_ > term_ || !has_runs) return;
  }
  const std::string next = journal.HandOver(kCopyTimeout);
  Note(next.empty() ? "ends, and no other one has a copy of the run"
                    : absl::StrCat("ends; the one at ", next, " leads now"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceReplica>> StartCopiedService(CopiedServiceOptions options) {
  PrepareGrpc();
  auto socket = ListenOn(options.server.address, options.server.port);
  if (!socket.ok()) return socket.status();
  auto target = TargetOf(*socket);
  if (!target.ok()) return target.status();
  return std::make_unique<CopiedService>(std::move(options), *std::move(socket),
                                         *std::move(target));
}

}  // namespace ddprun
