// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/channel_failure.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/security/hello_tag.h"

namespace ddprun {
namespace {

// The errno's text follows it.
constexpr absl::string_view kBeforeErrno = "Failed to connect to remote host: ";

// gRPC gives all of these the code UNAVAILABLE and no details: only its text, and OpenSSL's in it,
// tells them apart. The first row whose text is found decides.
// tests/integration/rendezvous/channel_failure_test.cc fails where gRPC words it otherwise.
constexpr struct {
  absl::string_view text;
  ChannelCause cause;
} kTexts[] = {
    {"DNS resolution failed", ChannelCause::kUnresolved},
    {"C-ares", ChannelCause::kUnresolved},
    {"Failed to connect to remote host: Connection refused", ChannelCause::kRefused},
    {kBeforeErrno, ChannelCause::kNotConnected},
    {"connect() timed out", ChannelCause::kTimedOut},
    {"FD shutdown", ChannelCause::kTimedOut},
    {"Timeout occurred", ChannelCause::kTimedOut},
    {"Handshake timed out", ChannelCause::kNoHandshake},
    {"andshaker shutdown", ChannelCause::kNoHandshake},
    {"timed out before receiving SETTINGS", ChannelCause::kNoHandshake},
    {"alert certificate expired", ChannelCause::kClientExpired},
    {"alert certificate unknown", ChannelCause::kServiceExpired},
    {"certificate verify failed", ChannelCause::kUntrusted},
    {"is not in peer certificate", ChannelCause::kOtherName},
    {"alert insufficient security", ChannelCause::kPlainText},
    {"alert protocol version", ChannelCause::kOtherTls},
    {"keepalive watchdog timeout", ChannelCause::kSilent},
    {"unexpected eof", ChannelCause::kCutOff},
    {"SSL_ERROR_SYSCALL", ChannelCause::kCutOff},
    {"SSL routines", ChannelCause::kNotDdprun},
    {"http1.x server", ChannelCause::kNotDdprun},
    {"parsing HTTP/2", ChannelCause::kNotDdprun},
    {"Socket closed", ChannelCause::kCutOff},
    {"Endpoint read failed", ChannelCause::kCutOff},
    {"Connection reset by peer", ChannelCause::kCutOff},
    {"Handshake read failed", ChannelCause::kHandshakeHangs},
    {"handshake", ChannelCause::kNoDdprunYet},
    {"SETTINGS", ChannelCause::kNoDdprunYet},
};

std::string After(absl::string_view prefix, absl::string_view text) {
  const std::size_t at = text.rfind(prefix);
  return std::string(at == absl::string_view::npos ? text : text.substr(at + prefix.size()));
}

// For a Listener's alert about clocks: how the two may differ.
std::string ClocksDiffer(std::time_t lifetime) {
  return absl::StrCat(": the clocks of this machine and of that one differ by more than ",
                      lifetime / (24 * 3600), " days, or ");
}

}  // namespace

ChannelCause CauseOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return ChannelCause::kOther;
  for (const auto& [text, cause] : kTexts) {
    if (absl::StrContains(status.error_message(), text)) return cause;
  }
  return ChannelCause::kOther;
}

std::string ReasonText(const grpc::Status& status, const std::string& target) {
  switch (CauseOf(status)) {
    case ChannelCause::kUnresolved:
      return absl::StrCat("cannot resolve '", target.substr(0, target.rfind(':')), "'");
    case ChannelCause::kRefused:
    case ChannelCause::kNotConnected:
      return absl::AsciiStrToLower(After(kBeforeErrno, status.error_message()));
    case ChannelCause::kTimedOut:
      return "no answer; the host is down or a firewall drops the packets";
    case ChannelCause::kNoHandshake:
      return "no answer; the host is down, a firewall drops the packets, or what listens there is "
             "something else";
    case ChannelCause::kHandshakeHangs:
      return "no answer; what listens there hangs or is stopped, or it is something else";
    case ChannelCause::kClientExpired:
      return "it finds this node's certificate expired, as after a long run or where clocks differ";
    case ChannelCause::kSilent:
      return absl::StrCat("no answer for ", kKeepaliveTimeout.count(), " s");
    case ChannelCause::kCutOff:
      return "it accepts connections and closes them at once; it is just ending, or does not "
             "accept this node's certificate, or is no ddprun";
    case ChannelCause::kServiceExpired:
    case ChannelCause::kUntrusted:
    case ChannelCause::kOtherName:
      return "its certificate is not valid for this node";
    case ChannelCause::kPlainText:
    case ChannelCause::kOtherTls:
    case ChannelCause::kNotDdprun:
    case ChannelCause::kNoDdprunYet:
      return "what answers there is not a ddprun rendezvous service";
    case ChannelCause::kOther:
      break;
  }
  return After("last error: ", status.error_message());
}

std::optional<absl::Status> FinalReason(const grpc::Status& status, const std::string& target,
                                        const std::optional<TlsCredentials>& credentials) {
  const auto because = [&](const auto&... words) {
    return absl::FailedPreconditionError(
        absl::StrCat("the rendezvous service at ", target, words...));
  };
  // The reply of a Listener to plain text.
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && !credentials.has_value()) {
    return because(
        " speaks TLS and this node plain text; start this node without --insecure, or that one "
        "with it");
  }
  const bool derived = credentials.has_value() && credentials->derived;
  const auto not_ddprun = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat("what answers at ", target,
                     " is not a ddprun rendezvous service; check the address and the port"));
  };
  constexpr absl::string_view kSetClocks = "; set both clocks, e.g. by NTP, and start ";
  switch (CauseOf(status)) {
    case ChannelCause::kClientExpired:
      if (!derived) return not_ddprun();
      return because(" finds this program's certificate expired",
                     ClocksDiffer(credentials->times.end - credentials->times.made),
                     "this program was started longer ago", kSetClocks, "it again");
    case ChannelCause::kServiceExpired:
      if (!derived) return not_ddprun();
      return because(" has a certificate that has expired by this machine's clock",
                     ClocksDiffer(kNodeCertificateSeconds), "the service was started longer ago",
                     kSetClocks, "both again");
    case ChannelCause::kUntrusted:
      return because(
          credentials.has_value() && !derived
              ? " has a certificate that no authority in --tls-ca has signed, or that is not valid "
                "at this machine's time; give the same --tls-ca on all nodes, and check the clock"
              : " has another token: copy ~/.config/ddprun/token from that host to this one (or "
                "set DDPRUN_TOKEN on both)");
    case ChannelCause::kOtherName:
      return because(
          " has a certificate that is not for that name; give the name that is in it as the "
          "address, or another certificate there");
    case ChannelCause::kPlainText:
      return because(" speaks plain text; start it without --insecure, or this node with it");
    case ChannelCause::kOtherTls:
      return because(" and this node have no version of TLS in common; install the same ddprun");
    case ChannelCause::kNotDdprun:
      return not_ddprun();
    case ChannelCause::kOther:
    case ChannelCause::kUnresolved:
    case ChannelCause::kRefused:
    case ChannelCause::kNotConnected:
    case ChannelCause::kTimedOut:
    case ChannelCause::kNoHandshake:
    case ChannelCause::kHandshakeHangs:
    case ChannelCause::kNoDdprunYet:
    case ChannelCause::kSilent:
    case ChannelCause::kCutOff:
      break;
  }
  return std::nullopt;
}

}  // namespace ddprun
