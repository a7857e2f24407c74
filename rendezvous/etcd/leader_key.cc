// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/leader_key.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

const EtcdEntry* Find(const EtcdOutcome& outcome, const std::string& key) {
  const auto it = std::find_if(outcome.found.begin(), outcome.found.end(),
                               [&](const EtcdEntry& entry) { return entry.key == key; });
  return it == outcome.found.end() ? nullptr : &*it;
}

absl::Status NoLongerLeads(const EtcdEntry* leader) {
  return absl::FailedPreconditionError(
      leader == nullptr
          ? "this service's lease in etcd has expired: it no longer leads, and writes nothing"
          : absl::StrCat("the service at ", leader->value,
                         " leads now: this one writes nothing any more"));
}

}  // namespace

EtcdCondition LeaderFence::Condition() const { return {LeaderKey(prefix), revision}; }

std::string LeaderKey(const std::string& prefix) { return prefix + "/leader"; }

absl::StatusOr<Leader> TryToLead(EtcdStore& store, const std::string& prefix, std::int64_t lease,
                                 const std::string& address) {
  const std::string key = LeaderKey(prefix);
  const EtcdTransaction transaction{.conditions = {{key, 0}},
                                    .puts = {{key, address, lease}},
                                    .deletions = {},
                                    .reads_otherwise = {key}};
  const auto outcome = store.Commit(transaction);
  if (!outcome.ok()) return outcome.status();
  if (outcome->done) return Leader{outcome->revision, lease, address};
  const EtcdEntry* const leader = Find(*outcome, key);
  if (leader == nullptr) return absl::InternalError("etcd refused a condition that holds");
  return Leader{leader->create_revision, leader->lease, leader->value};
}

absl::Status WriteAsLeader(EtcdStore& store, const LeaderFence& fence, EtcdTransaction transaction,
                           const std::string& fresh) {
  const EtcdCondition condition = fence.Condition();
  transaction.conditions = {condition, {fresh, 0}};
  transaction.reads_otherwise = {condition.key, fresh};
  const auto outcome = store.Commit(transaction);
  if (!outcome.ok()) return outcome.status();
  if (outcome->done) return absl::OkStatus();
  const EtcdEntry* const leader = Find(*outcome, condition.key);
  const bool leads = leader != nullptr && leader->create_revision == fence.revision;
  // Nobody else can have put it while this service leads.
  if (leads && Find(*outcome, fresh) != nullptr) return absl::OkStatus();
  return NoLongerLeads(leader);
}

absl::Status RepeatAsLeader(EtcdStore& store, const LeaderFence& fence,
                            EtcdTransaction transaction) {
  const EtcdCondition condition = fence.Condition();
  transaction.conditions = {condition};
  transaction.reads_otherwise = {condition.key};
  const auto outcome = store.Commit(transaction);
  if (!outcome.ok()) return outcome.status();
  return outcome->done ? absl::OkStatus() : NoLongerLeads(Find(*outcome, condition.key));
}

}  // namespace ddprun
