// SPDX-License-Identifier: Apache-2.0
// Who leads: the key PREFIX/leader, whose value is the leader's address. It goes with its lease,
// and its revision is the leader's for good: each write names it as a condition, so that a leader
// that was stopped and wakes up, after another one has the key, cannot write.
//
// As in etcd's own election recipe (concurrency.Election), with one key instead of a queue: those
// that wait are few.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/etcd/etcd_store.h"

namespace ddprun {

struct Leader {
  std::int64_t revision = 0;  // at which it became the leader
  std::int64_t lease = 0;
  std::string address;
};

// Who writes, and where.
struct LeaderFence {
  std::string prefix;
  std::int64_t revision = 0;

  EtcdCondition Condition() const;
};

std::string LeaderKey(const std::string& prefix);

// Makes `address` the leader if there is none, and returns who leads then: this service if the
// lease is its own. Errors: EtcdStore's; NOT_FOUND: the lease has expired.
absl::StatusOr<Leader> TryToLead(EtcdStore& store, const std::string& prefix, std::int64_t lease,
                                 const std::string& address);

// Writes as the leader. The answer to an earlier attempt with the same transaction may have been
// lost: the transaction must put `fresh`, a key that it puts only once. FAILED_PRECONDITION:
// another service leads now, or none.
absl::Status WriteAsLeader(EtcdStore& store, const LeaderFence& fence, EtcdTransaction transaction,
                           const std::string& fresh);
// The same for what may be done twice.
absl::Status RepeatAsLeader(EtcdStore& store, const LeaderFence& fence,
                            EtcdTransaction transaction);

}  // namespace ddprun
