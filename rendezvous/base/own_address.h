// SPDX-License-Identifier: Apache-2.0
// By which address the other nodes know this one.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// Whether `host` is a name, other than localhost, that this machine resolves to loopback addresses
// alone: Debian's "127.0.1.1 node0" in node 0's own /etc/hosts. The other nodes resolve it to
// another address.
bool IsOwnNameOnLoopback(const std::string& host);

// The address of the default route, or of the first interface that is up. UNAVAILABLE if there is
// only loopback.
absl::StatusOr<std::string> OutwardAddress();

// The address of this host from which `target` is reached ("10.0.0.2"), for the other nodes to
// reach this one by: the kernel's route decides, no name service does. UNAVAILABLE if the name
// cannot be resolved or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// The address that the other nodes are told: LocalAddressTowards(), and the
// OutwardAddress() where IsOwnNameOnLoopback().
absl::StatusOr<std::string> AdvertisedAddress(const std::string& host, int port);

}  // namespace ddprun
