// SPDX-License-Identifier: Apache-2.0
// etcd's v3 API over gRPC, to whichever of its members answers. No gRPC type is named here.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/etcd/etcd_store.h"

namespace ddprun {

class EtcdClient : public EtcdStore {
 public:
  struct Options {
    std::vector<std::string> members;
    EtcdTlsFiles tls;
    // A call is repeated at the next member for so long. A watch ends with the first failure.
    std::chrono::milliseconds timeout = kJournalAnswerTimeout;
  };

  // Does not connect yet. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT: a file of `tls` cannot be
  // used.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Make(Options options);

  // Ends the calls that are under way and all later ones. Threadsafe.
  virtual void Close() = 0;
};

}  // namespace ddprun
