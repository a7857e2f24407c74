// SPDX-License-Identifier: Apache-2.0
// Tells members from strangers by their ClientHello, before a handshake costs anything. A node asks
// for the service under a name of which the first label is a tag: a random number, and its HMAC
// under a key that only those who have the run's secret can derive. The name is sent in the clear,
// as TLS does with names (SNI).
//
// A tag proves nothing that a handshake relies on; it decides only whose slots a handshake takes
// (handshakes.h). Whoever has recorded a tag on the network takes slots of that one node.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// "TAG.rendezvous.ddprun" with a new random number; without a tag where there is no key.
std::string MakeTaggedName(const std::string& hello_key);

// The random number of a name's tag; nullopt if it is not one of this key.
std::optional<std::string> ReadTag(const std::string& hello_key, absl::string_view server_name);

}  // namespace ddprun
