// SPDX-License-Identifier: Apache-2.0
// What the service needs of etcd's v3 API, as plain values: an interface, so that tests can take
// etcd's place. etcd_client.h implements it.
//
// Each call waits for its answer. A call that fails with UNAVAILABLE may have been carried out:
// its answer was lost. All calls are linearizable.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

struct EtcdEntry {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t lease = 0;  // 0: none
  bool operator==(const EtcdEntry&) const = default;
};

// Keys from `from` to before `to`.
struct EtcdKeys {
  std::string from;
  std::string to;
};

struct EtcdCondition {
  std::string key;
  std::int64_t create_revision = 0;  // 0: there is no such key
};

struct EtcdPut {
  std::string key;
  std::string value;
  std::int64_t lease = 0;  // the key goes with it; 0: none
};

// All at once: where all conditions hold the puts and then the deletions, otherwise the reads.
struct EtcdTransaction {
  std::vector<EtcdCondition> conditions;
  std::vector<EtcdPut> puts;
  std::vector<EtcdKeys> deletions;
  std::vector<std::string> reads_otherwise;
};

struct EtcdOutcome {
  bool done = false;             // the conditions held
  std::int64_t revision = 0;     // of the whole store, after it
  std::vector<EtcdEntry> found;  // by the reads; a key that is not there is left out
};

struct EtcdPage {
  std::vector<EtcdEntry> entries;  // by key
  bool more = false;
};

struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::seconds ttl{0};  // may be longer than what was asked for
};

// Threadsafe.
class EtcdStore {
 public:
  virtual ~EtcdStore() = default;

  // Errors of all calls: UNAVAILABLE: no member of etcd has answered in time, or none that belongs
  // to a majority. RESOURCE_EXHAUSTED: etcd's database is full. CANCELLED: the store is closing.
  // Others are of permissions and certificates. Each message is a sentence that names etcd.

  virtual absl::StatusOr<EtcdOutcome> Commit(const EtcdTransaction& transaction) = 0;
  virtual absl::StatusOr<EtcdPage> Read(const EtcdKeys& keys, int entries_max) = 0;

  virtual absl::StatusOr<EtcdLease> GrantLease(std::chrono::seconds ttl) = 0;
  // Returns the time until it expires. NOT_FOUND: it has expired or was revoked.
  virtual absl::StatusOr<std::chrono::seconds> KeepAlive(std::int64_t lease) = 0;
  // OK also if there is no such lease any more.
  virtual absl::Status RevokeLease(std::int64_t lease) = 0;

  // Returns once the key was deleted at or after that revision, or after `timeout`. UNAVAILABLE: it
  // may have been deleted.
  virtual absl::Status AwaitDeletion(const std::string& key, std::int64_t revision,
                                     std::chrono::milliseconds timeout) = 0;
};

}  // namespace ddprun
