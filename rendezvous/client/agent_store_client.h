// SPDX-License-Identifier: Apache-2.0
// A worker's client of its agent's socket. It has no thread: of the callers that wait, one reads
// for all.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/client/store_client.h"

namespace ddprun {

// `options.target` is "unix:/PATH".
absl::StatusOr<std::shared_ptr<StoreClient>> ConnectToAgent(StoreClient::Options options);

// Of StoreClient::Connect(), when nothing answers in time.
absl::Status NobodyAnswers(const StoreClient::Options& options);

}  // namespace ddprun
