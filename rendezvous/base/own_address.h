// SPDX-License-Identifier: Apache-2.0
// The address of this node that other nodes use.
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

// The address of this host from which `host` is reached ("10.0.0.2"), as the kernel routes it.
// UNAVAILABLE if the name cannot be resolved or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// The address that is advertised to other nodes: LocalAddressTowards(), or OutwardAddress() if
// IsOwnNameOnLoopback().
absl::StatusOr<std::string> AdvertisedAddress(const std::string& host, int port);

}  // namespace ddprun
