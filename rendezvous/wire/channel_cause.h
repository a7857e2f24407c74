// SPDX-License-Identifier: Apache-2.0
// Why a call or a stream did not reach the service, or lost it.
#pragma once

namespace ddprun {

enum class ChannelCause {
  kOther,           // a status of the service itself, or something that gRPC words otherwise
  kUnresolved,      // the name has no address
  kRefused,         // nothing listens at the address
  kNotConnected,    // connect(2) failed otherwise
  kTimedOut,        // connect(2) had no answer
  kNoHandshake,     // no answer to the first bytes, or to connect(2)
  kHandshakeHangs,  // the peer accepted the connection and did not answer to TLS
  kClientExpired,   // a Listener's alert: this program's certificate has expired by its clock
  kServiceExpired,  // a Listener's alert: its own certificate has, by this machine's clock
  kUntrusted,       // the service's certificate is of another authority, or not valid
  kOtherName,       // the service's certificate is for another name
  kPlainText,       // a Listener's alert: it speaks plain text
  kOtherTls,        // the two have no version of TLS in common
  kNotDdprun,       // what answers speaks neither TLS nor HTTP/2
  kNoDdprunYet,     // what answers ended the handshake otherwise
  kSilent,          // a connection that was in use: no answer to keepalive pings
  kCutOff,          // the peer closed the connection without a reply, as a service that is ending
};

}  // namespace ddprun
