// SPDX-License-Identifier: Apache-2.0
// etcd in memory, for one thread: keys with revisions, leases, transactions; and what goes wrong
// there. A hook is called before and after each transaction is carried out, so that others act in
// between.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "rendezvous/etcd/etcd_store.h"

namespace ddprun {

class FakeEtcd final : public EtcdStore {
 public:
  enum class Fault {
    kNone,
    kNotReached,  // not carried out
    kLost,        // carried out, and the answer is lost
    kRepeated,    // carried out, the answer is lost, and the client asks again
  };

  std::function<Fault()> next_fault = [] { return Fault::kNone; };
  std::function<void()> between = [] {};

  absl::StatusOr<EtcdOutcome> Commit(const EtcdTransaction& transaction) override {
    const Fault fault = next_fault();
    between();
    if (fault == Fault::kNotReached) return NotReached();
    absl::StatusOr<EtcdOutcome> outcome = CarryOut(transaction);
    between();
    if (fault == Fault::kLost) return NotReached();
    return fault == Fault::kRepeated ? CarryOut(transaction) : outcome;
  }

  absl::StatusOr<EtcdPage> Read(const EtcdKeys& keys, int entries_max) override {
    between();
    if (next_fault() == Fault::kNotReached) return NotReached();
    EtcdPage page;
    for (auto it = entries_.lower_bound(keys.from); it != entries_.end(); ++it) {
      if (keys.to.empty() ? it->first != keys.from : it->first >= keys.to) break;
      page.more = page.entries.size() == static_cast<std::size_t>(entries_max);
      if (page.more) break;
      page.entries.push_back(it->second);
    }
    return page;
  }

  absl::StatusOr<EtcdLease> GrantLease(std::chrono::seconds ttl) override {
    leases_[++last_lease_] = ttl;
    return EtcdLease{last_lease_, ttl};
  }
  absl::StatusOr<std::chrono::seconds> KeepAlive(std::int64_t lease) override {
    const auto it = leases_.find(lease);
    if (it == leases_.end()) return absl::NotFoundError("there is no such lease");
    return it->second;
  }
  // Also what happens when it expires.
  absl::Status RevokeLease(std::int64_t lease) override {
    if (leases_.erase(lease) == 0) return absl::OkStatus();
    ++revision_;
    std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease == lease; });
    return absl::OkStatus();
  }
  absl::Status AwaitDeletion(const std::string&, std::int64_t, std::chrono::milliseconds) override {
    return absl::UnavailableError("nobody waits here");
  }

  std::map<std::string, EtcdEntry>& entries() { return entries_; }

 private:
  static absl::Status NotReached() { return absl::UnavailableError("etcd was not reached"); }

  std::int64_t RevisionOf(const std::string& key) const {
    const auto it = entries_.find(key);
    return it == entries_.end() ? 0 : it->second.create_revision;
  }

  absl::StatusOr<EtcdOutcome> CarryOut(const EtcdTransaction& transaction) {
    EtcdOutcome outcome{.done = true};
    for (const EtcdCondition& condition : transaction.conditions)
      outcome.done = outcome.done && RevisionOf(condition.key) == condition.create_revision;
    if (!outcome.done) {
      for (const std::string& key : transaction.reads_otherwise) {
        const auto it = entries_.find(key);
        if (it != entries_.end()) outcome.found.push_back(it->second);
      }
      outcome.revision = revision_;
      return outcome;
    }
    for (const EtcdPut& put : transaction.puts) {
      if (put.lease != 0 && leases_.count(put.lease) == 0)
        return absl::NotFoundError("there is no such lease");
    }
    outcome.revision = ++revision_;
    for (const EtcdPut& put : transaction.puts) {
      const std::int64_t made = RevisionOf(put.key);
      entries_[put.key] = {put.key, put.value, made == 0 ? revision_ : made, put.lease};
    }
    for (const EtcdKeys& keys : transaction.deletions)
      entries_.erase(entries_.lower_bound(keys.from), entries_.lower_bound(keys.to));
    return outcome;
  }

  std::int64_t revision_ = 1;
  std::int64_t last_lease_ = 0;
  std::map<std::int64_t, std::chrono::seconds> leases_;
  std::map<std::string, EtcdEntry> entries_;
};

}  // namespace ddprun
