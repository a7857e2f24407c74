// SPDX-License-Identifier: Apache-2.0
// Distinguishes members from strangers by their ClientHello, before a handshake costs anything. A
// node asks for the service under a name whose first label is a tag: a random number, the times of
// the node's certificate, and their HMAC under a key that is derived from the run's secret. TLS
// sends the name in the clear (SNI). The times tell the service that a handshake must fail because
// clocks differ, while both sides can still be told.
//
// A tag authenticates nothing; it only selects the slots for the handshake (handshakes.h). A
// recorded tag takes slots of that one node.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct HelloTag {
  std::string number;      // random, in hexadecimal digits
  CertificateTimes times;  // `made` up to an hour too early, `end` up to an hour too late
  bool operator==(const HelloTag&) const = default;
};

// "TAG.rendezvous.ddprun" with a new random number; without a tag where there is no key.
std::string MakeTaggedName(const std::string& hello_key, const CertificateTimes& times = {});

// nullopt: the name has no tag of this key.
std::optional<HelloTag> ReadTag(const std::string& hello_key, absl::string_view server_name);

}  // namespace ddprun
