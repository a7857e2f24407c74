// SPDX-License-Identifier: Apache-2.0
// What gRPC says where a service is not reached: each way to fail is made for real, so that a gRPC
// that words it otherwise is noticed.
#include "rendezvous/wire/channel_failure.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <optional>
#include <string>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/listener/first_bytes.h"
#include "rendezvous/service/server.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/raw_server.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/certificates.h"

namespace ddprun {
namespace {

using Credentials = std::optional<TlsCredentials>;

constexpr char kOne[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
constexpr char kOther[] = "10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

TlsCredentials Node(const char* token = kOne) {
  return *MintNodeCredentials(*Token::Parse(token, "it"), "run", "id");
}

std::unique_ptr<RendezvousServer> Serve(Credentials credentials) {
  auto server =
      RendezvousServer::Start({.address = "127.0.0.1", .credentials = std::move(credentials)});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// The end of one call, which is the first on its channel.
grpc::Status Call(const std::string& target, const Credentials& credentials = std::nullopt) {
  const auto stub = v1::Rendezvous::NewStub(MakeChannel(target, credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 2 * kConnectAttemptTimeout);
  v1::StatusAnswer answer;
  return stub->GetStatus(&context, v1::StatusRequest(), &answer);
}

#define EXPECT_CAUSE(expected, ...)                               \
  do {                                                            \
    const grpc::Status status = __VA_ARGS__;                      \
    EXPECT_EQ(CauseOf(status), ChannelCause::expected)            \
        << status.error_code() << ": " << status.error_message(); \
  } while (false)

TEST(ChannelFailureTest, NothingIsThere) {
  EXPECT_CAUSE(kRefused, Call(HostPort("127.0.0.1", *FindFreePort("127.0.0.1"))));
  EXPECT_CAUSE(kUnresolved, Call("no-such-host.invalid:1"));
}

TEST(ChannelFailureTest, ItHangsUp) {
  RawServer other("");
  EXPECT_CAUSE(kCutOff, Call(other.target()));
  EXPECT_CAUSE(kCutOff, Call(other.target(), Node()));
}

TEST(ChannelFailureTest, AnotherProgramAnswers) {
  for (const char* const answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    RawServer other(answer);
    EXPECT_CAUSE(kNotDdprun, Call(other.target()));
    EXPECT_CAUSE(kNotDdprun, Call(other.target(), Node()));
  }
}

TEST(ChannelFailureTest, AnAlertIsTheAnswer) {
  const auto answer = [](absl::string_view bytes) {
    RawServer other{std::string(bytes)};
    return Call(other.target(), Node());
  };
  EXPECT_CAUSE(kOtherTls, answer(kProtocolVersionAlert));
  EXPECT_CAUSE(kPlainText, answer(kInsufficientSecurityAlert));
  EXPECT_CAUSE(kClientExpired, answer(kClientExpiredAlert));
  EXPECT_CAUSE(kServiceExpired, answer(kServiceExpiredAlert));
}

TEST(ChannelFailureTest, TheServicesCertificateDoesNotFit) {
  auto service = Serve(*MintServiceCredentials(*Token::Parse(kOne, "it")));
  EXPECT_CAUSE(kUntrusted, Call(service->target(), Node(kOther)));
  const TestAuthority authority("ours");
  auto named = Serve(authority.Issue({.alternative_name = "DNS:head.cluster"}));
  EXPECT_CAUSE(kOtherName, Call(named->target(), authority.Issue({})));
}

// A socket that nothing accepts connections from, whose queue is full: the kernel drops further
// ones.
class FullSocket {
 public:
  FullSocket() {
    listen(socket_.fd.get(), 0);
    // The second one, which has no place, stays in connect(2).
    for (OwnedFd& fd : fillers_) {
      fd = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(socket_.port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }
  std::string target() const { return HostPort("127.0.0.1", socket_.port); }

 private:
  const ListeningSocket socket_ = *ListenOn("127.0.0.1", 0);
  OwnedFd fillers_[2];
};

// Each takes gRPC's time for an attempt.
TEST(ChannelFailureTest, NothingAnswers) {
  const FullSocket full;
  const ListeningSocket silent = *ListenOn("127.0.0.1", 0);  // the kernel accepts the connection
  const std::string target = HostPort("127.0.0.1", silent.port);
  auto dropped = std::async(std::launch::async, [&] { return Call(full.target()); });
  auto plain = std::async(std::launch::async, [&] { return Call(target); });
  auto tls = std::async(std::launch::async, [&] { return Call(target, Node()); });
  EXPECT_CAUSE(kNoHandshake, dropped.get());
  EXPECT_CAUSE(kNoHandshake, plain.get());
  EXPECT_CAUSE(kHandshakeHangs, tls.get());
}

TEST(ChannelFailureTest, AStatusOfTheServiceItselfIsNotReadForItsWords) {
  EXPECT_CAUSE(kOther, grpc::Status(grpc::StatusCode::NOT_FOUND, "Connection reset by peer"));
  EXPECT_CAUSE(kOther, grpc::Status(grpc::StatusCode::UNAVAILABLE, "the service is ending"));
}

}  // namespace
}  // namespace ddprun
