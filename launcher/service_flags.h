// SPDX-License-Identifier: Apache-2.0
// Which rendezvous service a command talks to, as its flags say it: one on the network, or that of
// a run of this machine alone, which is a socket in the agent's temporary folder.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags.h"

namespace ddprun {

struct ServiceAddress {
  Endpoint endpoint;   // where `socket` is empty
  std::string socket;  // a path
};

// For ServiceChannel, and for people.
std::string TargetOf(const ServiceAddress& service);

// --rdzv-endpoint, --master-addr, --master-port, --socket, --rdzv-id and --timeout.
extern const std::vector<Flag> kServiceFlags;

// `local`: the sockets of this user's runs on this machine, of which the only one is meant where no
// flag names a service. INVALID_ARGUMENT: none is named, and there is none or several.
absl::StatusOr<ServiceAddress> ReadServiceAddress(Reader& reader,
                                                  const std::vector<std::string>& local,
                                                  const std::string& see_help);

std::chrono::milliseconds ReadServiceTimeout(Reader& reader);

}  // namespace ddprun
