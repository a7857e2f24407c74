// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/etcd_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/etcd/etcd.grpc.pb.h"
#include "rendezvous/security/pem_files.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

namespace etcd = etcdserverpb;
using Channel = std::shared_ptr<grpc::Channel>;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What etcd says where it has too much to do; "mvcc: database space exceeded" has the same code.
constexpr absl::string_view kTooManyRequests = "too many requests";

// etcd's leader answers from memory. A member that is cut off from it must leave time to ask the
// next one before the lease expires.
constexpr milliseconds kKeepAliveTimeout = milliseconds(kLeaderLease) / 4;

EtcdEntry ToEntry(const etcd::KeyValue& kv) {
  return {.key = kv.key(),
          .value = kv.value(),
          .create_revision = kv.create_revision(),
          .lease = kv.lease()};
}

etcd::TxnRequest ToRequest(const EtcdTransaction& transaction) {
  etcd::TxnRequest request;
  for (const EtcdCondition& condition : transaction.conditions) {
    etcd::Compare* const compare = request.add_compare();
    compare->set_result(etcd::Compare::EQUAL);
    compare->set_target(etcd::Compare::CREATE);
    compare->set_key(condition.key);
    compare->set_create_revision(condition.create_revision);
  }
  for (const EtcdPut& put : transaction.puts) {
    etcd::PutRequest* const to = request.add_success()->mutable_request_put();
    to->set_key(put.key);
    to->set_value(put.value);
    to->set_lease(put.lease);
  }
  for (const EtcdKeys& keys : transaction.deletions) {
    etcd::DeleteRangeRequest* const to = request.add_success()->mutable_request_delete_range();
    to->set_key(keys.from);
    to->set_range_end(keys.to);
  }
  for (const std::string& key : transaction.reads_otherwise) {
    request.add_failure()->mutable_request_range()->set_key(key);
  }
  return request;
}

// Whether another member may answer, or the same one later.
bool MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:  // no leader, a new leader, not reached
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:  // a member that ends
    case grpc::StatusCode::UNKNOWN:    // words of its own, such as a member that is removed
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return absl::StrContains(status.error_message(), kTooManyRequests);
    default:
      return false;
  }
}

class GrpcEtcdClient final : public EtcdClient {
 public:
  GrpcEtcdClient(Options options, const std::optional<TlsCredentials>& credentials)
      : options_(std::move(options)) {
    for (const std::string& member : options_.members) {
      channels_.push_back(MakeChannel(member, credentials, /*server_name=*/"",
                                      ChannelPatience::kShortWithoutPings));
    }
  }

  absl::StatusOr<EtcdOutcome> Commit(const EtcdTransaction& transaction) override {
    const etcd::TxnRequest request = ToRequest(transaction);
    etcd::TxnResponse response;
    absl::Status status = Call([&](const Channel& channel, grpc::ClientContext& context) {
      response.Clear();
      return etcd::KV::NewStub(channel)->Txn(&context, request, &response);
    });
    if (!status.ok()) return status;
    EtcdOutcome outcome{.done = response.succeeded(), .revision = response.header().revision()};
    if (outcome.done) return outcome;
    for (const etcd::ResponseOp& op : response.responses()) {
      for (const etcd::KeyValue& kv : op.response_range().kvs())
        outcome.found.push_back(ToEntry(kv));
    }
    return outcome;
  }

  absl::StatusOr<EtcdPage> Read(const EtcdKeys& keys, int entries_max) override {
    etcd::RangeRequest request;
    request.set_key(keys.from);
    request.set_range_end(keys.to);
    request.set_limit(entries_max);
    etcd::RangeResponse response;
    absl::Status status = Call([&](const Channel& channel, grpc::ClientContext& context) {
      response.Clear();
      return etcd::KV::NewStub(channel)->Range(&context, request, &response);
    });
    if (!status.ok()) return status;
    EtcdPage page{.entries = {}, .more = response.more()};
    for (const etcd::KeyValue& kv : response.kvs()) page.entries.push_back(ToEntry(kv));
    return page;
  }

  absl::StatusOr<EtcdLease> GrantLease(std::chrono::seconds ttl) override {
    etcd::LeaseGrantRequest request;
    request.set_ttl(ttl.count());
    etcd::LeaseGrantResponse response;
    absl::Status status = Call([&](const Channel& channel, grpc::ClientContext& context) {
      response.Clear();
      return etcd::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
    });
    if (!status.ok()) return status;
    return EtcdLease{.id = response.id(), .ttl = std::chrono::seconds(response.ttl())};
  }

  absl::StatusOr<std::chrono::seconds> KeepAlive(std::int64_t lease) override {
    etcd::LeaseKeepAliveRequest request;
    request.set_id(lease);
    etcd::LeaseKeepAliveResponse response;
    absl::Status status = Call(
        [&](const Channel& channel, grpc::ClientContext& context) {
          response.Clear();
          const auto stub = etcd::Lease::NewStub(channel);
          const auto stream = stub->LeaseKeepAlive(&context);
          const bool answered = stream->Write(request) && stream->Read(&response);
          context.TryCancel();
          const grpc::Status end = stream->Finish();
          if (answered) return grpc::Status::OK;
          return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it closed the stream")
                          : end;
        },
        kKeepAliveTimeout);
    if (!status.ok()) return status;
    if (response.ttl() <= 0) return absl::NotFoundError("the lease has expired");
    return std::chrono::seconds(response.ttl());
  }

  absl::Status RevokeLease(std::int64_t lease) override {
    etcd::LeaseRevokeRequest request;
    request.set_id(lease);
    absl::Status status = Call([&](const Channel& channel, grpc::ClientContext& context) {
      etcd::LeaseRevokeResponse response;
      return etcd::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response);
    });
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::Status AwaitDeletion(const std::string& key, std::int64_t revision,
                             milliseconds timeout) override {
    etcd::WatchRequest request;
    request.mutable_create_request()->set_key(key);
    request.mutable_create_request()->set_start_revision(revision);
    request.mutable_create_request()->add_filters(etcd::WatchCreateRequest::NOPUT);
    grpc::ClientContext context;
    // Not its followers that know of no leader, which would never hear of the deletion.
    context.AddMetadata("hasleader", "true");
    const Clock::time_point deadline = Clock::now() + timeout;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    const std::size_t member = member_;
    if (!Begin(context)) return Closed();
    const auto stub = etcd::Watch::NewStub(channels_[member]);
    const auto stream = stub->Watch(&context);
    bool deleted = false;
    etcd::WatchResponse response;
    if (stream->Write(request)) {
      while (!deleted && stream->Read(&response) && !response.canceled()) {
        deleted = std::any_of(
            response.events().begin(), response.events().end(),
            [](const etcd::Event& event) { return event.type() == etcd::Event::DELETE; });
      }
    }
    context.TryCancel();
    const grpc::Status end = stream->Finish();
    End(context);
    if (deleted || Clock::now() >= deadline) return absl::OkStatus();
    TakeNextAfter(member);
    return absl::UnavailableError(
        absl::StrCat("etcd's watch ended: ", Printable(end.error_message())));
  }

  void Close() override {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    for (grpc::ClientContext* const context : under_way_) context->TryCancel();
  }

 private:
  using Attempt = std::function<grpc::Status(const Channel&, grpc::ClientContext&)>;

  static absl::Status Closed() { return absl::CancelledError("the connection to etcd is closing"); }

  bool Begin(grpc::ClientContext& context) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    under_way_.insert(&context);
    return true;
  }

  void End(grpc::ClientContext& context) {
    absl::MutexLock lock(&mutex_);
    under_way_.erase(&context);
  }

  // Unless another call has gone on already.
  void TakeNextAfter(std::size_t member) {
    member_.compare_exchange_strong(member, (member + 1) % channels_.size());
  }

  // At each member in turn, from the one that answered last, until one answers or `timeout` is
  // over.
  absl::Status Call(const Attempt& attempt, milliseconds attempt_timeout = kEtcdAttemptTimeout) {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    grpc::Status last;
    for (std::size_t tries = 1;; ++tries) {
      const std::size_t member = member_;
      const milliseconds left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return Unreached(last);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::min(left, attempt_timeout));
      context.AddMetadata("hasleader", "true");
      if (!Begin(context)) return Closed();
      last = attempt(channels_[member], context);
      End(context);
      if (last.ok()) return absl::OkStatus();
      if (!MayPass(last)) return Refused(last);
      TakeNextAfter(member);
      if (tries % channels_.size() == 0 && !Pause()) return Closed();
    }
  }

  // False: it is closing.
  bool Pause() {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&closed_), absl::FromChrono(kEtcdPause));
    return !closed_;
  }

  std::string Name() const {
    return absl::StrCat("etcd at ", absl::StrJoin(options_.members, ","));
  }

  absl::Status Unreached(const grpc::Status& last) const {
    return absl::UnavailableError(
        absl::StrCat(Name(), " has not answered for ",
                     std::chrono::duration<double>(options_.timeout).count(), " s (",
                     last.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
                         ? "no answer"
                         : ReasonText(last, options_.members.front()),
                     "); check that most of its members run and can be reached from here"));
  }

  absl::Status Refused(const grpc::Status& status) const {
    const std::string said = Printable(status.error_message());
    absl::string_view next = "check its log";
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      next =
          "its database is at --quota-backend-bytes: compact and defragment it, disarm its alarm "
          "(etcdctl compact, defrag, alarm disarm), and run it with --auto-compaction-retention";
    } else if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
               status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      next =
          "give the service a certificate of a user that may read and write below its prefix "
          "(--journal-tls-cert)";
    } else if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      next = "what answers has no v3 API of etcd; check --journal";
    }
    return {static_cast<absl::StatusCode>(status.error_code()),
            absl::StrCat(Name(), " refused a request: ", said, "; ", next)};
  }

  const Options options_;
  std::vector<Channel> channels_;
  std::atomic<std::size_t> member_ = 0;  // the one that answered last
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Make(Options options) {
  std::optional<TlsCredentials> credentials;
  if (!options.tls.ca.empty()) {
    auto read = ReadPemFiles({.cert = options.tls.cert,
                              .key = options.tls.key,
                              .ca = options.tls.ca,
                              .flags = "--journal-tls"});
    if (!read.ok()) return read.status();
    credentials = *std::move(read);
  }
  return std::make_unique<GrpcEtcdClient>(std::move(options), credentials);
}

}  // namespace ddprun
