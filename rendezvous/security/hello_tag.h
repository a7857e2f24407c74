// SPDX-License-Identifier: Apache-2.0
// Distinguishes members from strangers by their ClientHello, before a handshake costs anything. A
// node asks for the service under a name whose first label is a tag: a random number, and its HMAC
// under a key that is derived from the run's secret. TLS sends the name in the clear (SNI).
//
// A tag authenticates nothing; it only selects the slots for the handshake (handshakes.h). A
// recorded tag takes slots of that one node.
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
