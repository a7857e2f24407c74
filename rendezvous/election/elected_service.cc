// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/elected_service.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/election/standby_server.h"
#include "rendezvous/etcd/etcd_journal.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/etcd/lease_keeper.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Calls about the lease: an answer after it has expired is of no use.
constexpr milliseconds kElectionCallTimeout = kLeaderLease;
// How long a service that does not stand by waits for another one's lease to expire.
constexpr std::chrono::seconds kOtherLeaseTimeout = 3 * kLeaderLease;

// What ends once etcd answers again, or another service has led.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsCancelled(status);
}

class ElectedService final : public ServiceReplica {
 public:
  ElectedService(ElectedServiceOptions options, ListeningSocket socket, std::string target,
                 std::unique_ptr<EtcdClient> etcd)
      : ServiceReplica(std::move(socket), std::move(target), options.callbacks),
        options_(std::move(options)),
        etcd_(std::move(etcd)),
        elector_([this] { Elect(); }),
        prober_([this] { ProbeLeaders(); }) {}

  ~ElectedService() override {
    {
      Lock lock(mutex_);
      stopping_ = true;
      // A leader still gives its lease back.
      if (!leads_) etcd_->Close();
    }
    changed_.notify_all();
    elector_.join();
    prober_.join();
  }

 private:
  // ---- The elector's thread

  void Elect() {
    const TimePoint begin = Clock::now();
    while (!IsStopping()) {
      absl::Status status = StandBy();
      if (status.ok()) status = FollowOrLead(begin);
      if (status.ok() || IsStopping()) continue;
      if (!MayPass(status)) {
        callbacks_.on_end(status);
        return;
      }
      Note(std::string(status.message()));
      Pause(kEtcdPause);
    }
  }

  absl::Status StandBy() {
    {
      Lock lock(mutex_);
      if (standby_ != nullptr) return absl::OkStatus();
    }
    auto socket = Share(socket_);
    if (!socket.ok()) return socket.status();
    auto standby = StandbyServer::Start(*std::move(socket), options_.server.credentials, [this] {
      {
        Lock lock(mutex_);
        probe_wanted_ = true;
      }
      changed_.notify_all();
    });
    if (!standby.ok()) return standby.status();
    Lock lock(mutex_);
    standby_ = *std::move(standby);
    return absl::OkStatus();
  }

  absl::Status FollowOrLead(TimePoint begin) {
    const std::string key = LeaderKey(options_.etcd.prefix);
    const auto page = etcd_->Read({key, ""}, 1);
    if (!page.ok()) return page.status();
    if (!page->entries.empty()) {
      const EtcdEntry& entry = page->entries.front();
      return Follow({entry.create_revision, entry.lease, entry.value}, begin);
    }
    const TimePoint asked = Clock::now();
    const auto lease = etcd_->GrantLease(kLeaderLease);
    if (!lease.ok()) return lease.status();
    const auto leader = TryToLead(*etcd_, options_.etcd.prefix, lease->id, target_);
    if (leader.ok() && leader->lease == lease->id) {
      absl::Status status = Lead(*leader, *lease, asked);
      etcd_->RevokeLease(lease->id).IgnoreError();
      return status;
    }
    etcd_->RevokeLease(lease->id).IgnoreError();
    return leader.ok() ? Follow(*leader, begin) : leader.status();
  }

  absl::Status Follow(const Leader& leader, TimePoint begin) {
    if (!options_.stands_by) {
      if (Clock::now() > begin + kOtherLeaseTimeout) {
        return absl::AlreadyExistsError(absl::StrCat(
            "the service at ", leader.address,
            " leads with this journal; start this one with --standby, or name another prefix in "
            "--journal"));
      }
      Pause(kReconnectBackoffMax);
      return absl::OkStatus();
    }
    Note(absl::StrCat("stands by: the service at ", leader.address, " leads"));
    {
      Lock lock(mutex_);
      if (leader.revision != leader_revision_) leader_since_ = Clock::now();
      leader_revision_ = leader.revision;
      leader_ = leader;
      probe_wanted_ = standby_->holds_sessions();
    }
    changed_.notify_all();
    // Not for longer, since the member that is asked may be cut off.
    absl::Status status =
        etcd_->AwaitDeletion(LeaderKey(options_.etcd.prefix), leader.revision + 1, kLeaderLease);
    Lock lock(mutex_);
    leader_.reset();
    return status;
  }

  absl::Status Lead(const Leader& leader, const EtcdLease& lease, TimePoint asked) {
    const auto term = std::make_shared<LeaderTerm>();
    term->ExtendTo(asked + lease.ttl);
    {
      Lock lock(mutex_);
      leads_ = true;
      end_of_lead_.reset();
    }
    const LeaseKeeper keeper(*etcd_, lease, term, [this] {
      EndLead(absl::NotFoundError("no longer leads: its lease in etcd has expired"));
    });
    absl::Status status = Serve(leader, term);
    Lock lock(mutex_);
    leads_ = false;
    return status;
  }

  absl::Status Serve(const Leader& leader, const std::shared_ptr<LeaderTerm>& term) {
    auto socket = Share(socket_);
    if (!socket.ok()) return socket.status();
    auto records = EtcdClient::Make({.members = options_.etcd.members, .tls = options_.etcd_tls});
    if (!records.ok()) return records.status();
    RendezvousServer::Options options{.address = options_.server.address,
                                      .port = socket_.port,
                                      .credentials = options_.server.credentials,
                                      .default_run_id = options_.server.default_run_id,
                                      .watcher = options_.server.watcher,
                                      .socket = *std::move(socket)};
    options.journal = {.open =
                           [&](const JournalReplay& replay) {
                             return OpenEtcdJournal(*std::move(records),
                                                    {options_.etcd.prefix, leader.revision}, term,
                                                    {}, replay);
                           },
                       .on_failure = [this](const absl::Status& why) { EndLead(why); }};
    auto server = RendezvousServer::Start(std::move(options));
    if (!server.ok()) return server.status();
    Note("leads");
    // The sessions that it holds come back, to the server.
    std::unique_ptr<StandbyServer> standby;
    std::shared_ptr<RendezvousServer> served;
    absl::Status status;
    {
      Lock lock(mutex_);
      server_ = *std::move(server);
      standby = std::move(standby_);
    }
    standby.reset();
    {
      Lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || end_of_lead_.has_value(); });
      status = end_of_lead_.value_or(absl::OkStatus());
      served = std::move(server_);
    }
    return status;
  }

  void EndLead(const absl::Status& why) {
    {
      Lock lock(mutex_);
      if (!end_of_lead_) end_of_lead_ = why;
    }
    changed_.notify_all();
  }

  void Pause(milliseconds time) {
    Lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return stopping_; });
  }

  // ---- The prober's thread: whether the leader is there, when nodes ask this service.

  void ProbeLeaders() {
    Lock lock(mutex_);
    while (!stopping_) {
      if (!probe_wanted_ || !leader_) {
        changed_.wait(lock);
        continue;
      }
      probe_wanted_ = false;
      const Leader leader = *leader_;
      // Two services that cannot reach each other must not take turns.
      const bool may_replace = Clock::now() >= leader_since_ + kLeaderReplacePause;
      lock.unlock();
      const bool answers = Answers(leader.address);
      const bool replaced = !answers && may_replace && etcd_->RevokeLease(leader.lease).ok();
      lock.lock();
      if (answers && standby_ != nullptr) standby_->SendAway(leader.address);
      if (answers || replaced) continue;
      probe_wanted_ = true;
      changed_.wait_for(lock, kReconnectBackoffMax, [this] { return stopping_; });
    }
  }

  bool Answers(const std::string& address) const {
    const std::string host = address.substr(0, address.rfind(':'));
    const auto channel =
        MakeChannel(address, options_.probe_credentials, host, ChannelPatience::kShort);
    const auto deadline = std::chrono::system_clock::now() + kLeaderProbeTimeout;
    for (auto state = channel->GetState(/*try_to_connect=*/true); state != GRPC_CHANNEL_READY;
         state = channel->GetState(true)) {
      // Nothing listens there, or it does not take this service for one of its own.
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return false;
      if (!channel->WaitForStateChange(state, deadline)) return false;
    }
    return true;
  }

  const ElectedServiceOptions options_;
  const std::unique_ptr<EtcdClient> etcd_;

  // Guarded by mutex_.
  bool leads_ = false;
  std::optional<absl::Status> end_of_lead_;
  std::unique_ptr<StandbyServer> standby_;  // while another service leads, or none
  std::optional<Leader> leader_;            // another one
  std::int64_t leader_revision_ = 0;        // of the last one
  TimePoint leader_since_{};                // that it was first seen
  bool probe_wanted_ = false;

  std::thread elector_;  // last: they use all of the above
  std::thread prober_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceReplica>> StartElectedService(ElectedServiceOptions options) {
  PrepareGrpc();
  auto etcd = EtcdClient::Make(
      {.members = options.etcd.members, .tls = options.etcd_tls, .timeout = kElectionCallTimeout});
  if (!etcd.ok()) return etcd.status();
  auto socket = ListenOn(options.server.address, options.server.port);
  if (!socket.ok()) return socket.status();
  auto target = TargetOf(*socket);
  if (!target.ok()) return target.status();
  return std::make_unique<ElectedService>(std::move(options), *std::move(socket),
                                          *std::move(target), *std::move(etcd));
}

}  // namespace ddprun
