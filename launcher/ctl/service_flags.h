// SPDX-License-Identifier: Apache-2.0
// Which rendezvous service a command talks to, as its flags say it: one on the network, or a
// ddprun-rendezvous of this machine that listens on a socket.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"

namespace ddprun {

struct ServiceAddress {
  Endpoint endpoint;   // where `socket` is empty
  std::string socket;  // a path
};

// For ServiceChannel, and for people.
std::string TargetOf(const ServiceAddress& service);

// --rdzv-endpoint, --master-addr, --master-port, --socket, --rdzv-id and --timeout.
extern const std::vector<Flag> kServiceFlags;

// INVALID_ARGUMENT: none is named.
absl::StatusOr<ServiceAddress> ReadServiceAddress(Reader& reader, const std::string& see_help);

std::chrono::milliseconds ReadServiceTimeout(Reader& reader);

}  // namespace ddprun
