// SPDX-License-Identifier: Apache-2.0
// The journal in etcd, of the service that leads. A thread of its own writes what callers append:
// those that commit meanwhile share the next write.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/etcd/leader_term.h"
#include "rendezvous/journal/journal.h"

namespace ddprun {

struct EtcdJournalOptions {
  std::size_t segment_bytes_max = kEtcdSegmentBytesMax;  // when a snapshot is wanted
  std::size_t segment_values_max = kEtcdSegmentValuesMax;
};

// Commit() also waits until this service is sure that it leads: nothing that it knows is sent when
// another one may know more. Errors: EtcdLog::Open()'s; of the journal, FAILED_PRECONDITION also:
// another service leads.
absl::StatusOr<std::unique_ptr<Journal>> OpenEtcdJournal(std::unique_ptr<EtcdClient> client,
                                                         LeaderFence fence,
                                                         std::shared_ptr<LeaderTerm> term,
                                                         const EtcdJournalOptions& options,
                                                         const JournalReplay& replay);

}  // namespace ddprun
