// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/grpc_channel.h"

#include <grpc/support/log.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/resolve.h"
#include "rendezvous/security/hello_tag.h"

namespace ddprun {
namespace {

template <typename T>
int Milliseconds(T duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// A numeric address is passed to gRPC as such, so that gRPC does not ask a name server about it.
std::string GrpcTarget(const std::string& target) {
  if (absl::StartsWith(target, "unix:")) return target;
  const std::size_t colon = target.rfind(':');
  if (colon == std::string::npos) return target;
  std::string host = target.substr(0, colon);
  if (absl::StartsWith(host, "[")) return absl::StrCat("ipv6:", target);
  // gRPC's resolver cannot resolve it where /etc/hosts does not list it.
  if (host == "localhost") {
    const AddrInfoPtr list = Resolve(host, 0, SOCK_STREAM, 0);
    if (list != nullptr && list->ai_next == nullptr && list->ai_family == AF_INET) {
      return absl::StrCat("ipv4:127.0.0.1", target.substr(colon));
    }
  }
  return IsNumericAddress(host) ? absl::StrCat("ipv4:", target) : absl::StrCat("dns:///", target);
}

// gRPC must not abort silently.
void LogBrokenInvariantsOnly(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {
    std::fprintf(stderr, "gRPC: %s (%s:%d)\n", args->message, args->file, args->line);
  }
}

// gRPC 1.51 shares its callback threads between all channels and servers of a process, and ends
// them with the last of these. If a new one is made at that moment, a thread drops a reference that
// no longer exists ("assertion failed: prior > 0", seen once in some hundred tests) and the process
// aborts. A call that is never started keeps the threads.
struct CallbackThreads final : grpc::ClientBidiReactor<v1::Report, v1::Directive> {
  CallbackThreads()
      : stub(v1::Rendezvous::NewStub(
            grpc::CreateChannel("unix:/nowhere", grpc::InsecureChannelCredentials()))) {
    stub->async()->Session(&context, this);
  }

  grpc::ClientContext context;
  const std::unique_ptr<v1::Rendezvous::Stub> stub;
};

}  // namespace

void PrepareGrpc() {
  // Never destroyed: a static's destructor would run while gRPC's threads are still running. Marked
  // as used, so that leak checkers find the object.
  [[gnu::used]] static CallbackThreads* const threads = [] {
    // Debian's and Ubuntu's abseil searches for lock cycles on every lock; a store operation takes
    // a dozen locks.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(LogBrokenInvariantsOnly);
    // gRPC's own resolver uses /etc/hosts and DNS only; the system's also uses the sources in
    // nsswitch.conf (mDNS, LDAP, systemd), as ssh does. gRPC reads the variable once; workers do
    // not inherit it.
    constexpr char kResolver[] = "GRPC_DNS_RESOLVER";
    const bool is_ours = std::getenv(kResolver) == nullptr;
    if (is_ours) setenv(kResolver, "native", 1);
    auto* const made = new CallbackThreads;
    if (is_ours) unsetenv(kResolver);
    return made;
  }();
  (void)threads;
}

void SetServerArguments(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kHeaderBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
}

void SetServerKeepalive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveInterval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kIdleConnectionTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The clients ping as often as the server does; by default gRPC treats that as abuse and closes
  // the connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kKeepaliveInterval) / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder& builder, const std::optional<TlsCredentials>& credentials) {
  std::shared_ptr<grpc::ServerCredentials> server_credentials = grpc::InsecureServerCredentials();
  if (credentials.has_value()) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = credentials->ca_pem;
    options.pem_key_cert_pairs.push_back({credentials->key_pem, credentials->chain_pem});
    server_credentials = grpc::SslServerCredentials(options);
  }
  return builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(server_credentials));
}

std::function<void(int fd)> HandOverTo(grpc::experimental::ExternalConnectionAcceptor& acceptor) {
  return [&acceptor](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor.HandleNewConnection(&connection);
  };
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const std::optional<TlsCredentials>& credentials,
                                           const std::string& server_name,
                                           ChannelPatience patience) {
  PrepareGrpc();
  grpc::ChannelArguments arguments;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials =
      grpc::InsecureChannelCredentials();
  if (credentials.has_value()) {
    channel_credentials = grpc::SslCredentials({.pem_root_certs = credentials->ca_pem,
                                                .pem_private_key = credentials->key_pem,
                                                .pem_cert_chain = credentials->chain_pem});
    const std::string name = credentials->derived
                                 ? MakeTaggedName(credentials->hello_key, credentials->times)
                                 : server_name;
    if (!name.empty()) arguments.SetSslTargetNameOverride(name);
  }
  if (!absl::StartsWith(target, "unix:") && patience != ChannelPatience::kShortWithoutPings) {
    const bool is_short = patience == ChannelPatience::kShort;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                     is_short ? Milliseconds(kOtherPeerTimeout) : Milliseconds(kKeepaliveInterval));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                     is_short ? Milliseconds(kOtherPeerTimeout) : Milliseconds(kKeepaliveTimeout));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, patience == ChannelPatience::kLong
                                                          ? Milliseconds(kConnectAttemptTimeout)
                                                          : Milliseconds(kOtherPeerTimeout));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(kConnectBackoffMin));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kConnectBackoffMax));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, Milliseconds(kConnectBackoffMax));
  // Nodes of a run reach each other directly; http_proxy is for other hosts.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
  return grpc::CreateCustomChannel(GrpcTarget(target), channel_credentials, arguments);
}

ServiceChannel::ServiceChannel(std::string target, std::optional<TlsCredentials> credentials,
                               const std::string& server_name)
    : target_(std::move(target)), credentials_(std::move(credentials)) {
  const std::vector<std::string> services = absl::StrSplit(target_, ',');
  for (const std::string& service : services) {
    channels_.push_back(services.size() == 1 ? MakeChannel(service, credentials_, server_name)
                                             : MakeChannel(service, credentials_,
                                                           service.substr(0, service.rfind(':')),
                                                           ChannelPatience::kShort));
  }
}

std::shared_ptr<ServiceChannel> MakeServiceChannel(const std::string& target,
                                                   std::optional<TlsCredentials> credentials,
                                                   const std::string& server_name) {
  // On a unix socket the kernel identifies the peer.
  if (absl::StartsWith(target, "unix:")) credentials.reset();
  return std::make_shared<ServiceChannel>(target, std::move(credentials), server_name);
}

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout) {
  if (const auto reason = channel.FinalReason(status)) return *reason;
  const std::string service = absl::StrCat("the rendezvous service at ", channel.target());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(
          absl::StrCat(service, " is not reached: ", ReasonText(status, channel.target())));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat(
          service, " did not answer within ", std::chrono::duration<double>(timeout).count(),
          " s; the host is down, or a firewall drops the packets"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::FailedPreconditionError(absl::StrCat(
          "what answers at ", channel.target(),
          " does not know this question; install the same ddprun there, or check the address"));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          Printable(status.error_message()));
  }
}

}  // namespace ddprun
