// SPDX-License-Identifier: Apache-2.0
// gRPC's own health checking and reflection, as tools that know nothing of ddprun call them: the
// bytes are those of grpc/health/v1/health.proto and grpc/reflection/v1alpha/reflection.proto.

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/certificates.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflect[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const std::string kServing = {0x08, 0x01};  // HealthCheckResponse{status: SERVING}

// A message whose one field, of that number, is a text.
std::string TextField(int number, const std::string& text) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(text.size())) + text;
}
std::string HealthRequest(const std::string& service) {
  return service.empty() ? "" : TextField(1, service);
}
const std::string kListServices = TextField(7, "*");
std::string FileContaining(const std::string& symbol) { return TextField(4, symbol); }

// A stream of raw messages: says one thing, if anything, and keeps what comes.
class RawStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const char* method,
            std::optional<std::string> request, std::chrono::milliseconds deadline = kEventDeadline)
      : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + deadline);
    stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
    if (request) {
      const grpc::Slice slice(*request);
      request_ = grpc::ByteBuffer(&slice, 1);
      StartWrite(&request_);
    }
    StartRead(&reply_);
    StartCall();
  }
  ~RawStream() override {
    context_.TryCancel();
    ended_.WaitForNotification();
  }

  // The first reply; what stands where the stream ended without one.
  std::string Reply() {
    came_.WaitForNotification();
    return text_;
  }
  grpc::Status End() {
    ended_.WaitForNotification();
    return status_;
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok && text_.empty()) {
      std::vector<grpc::Slice> slices;
      (void)reply_.Dump(&slices);
      for (const grpc::Slice& slice : slices) text_.append(slice.begin(), slice.end());
      came_.Notify();
    }
    if (ok) StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    if (!came_.HasBeenNotified()) came_.Notify();
    ended_.Notify();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, reply_;
  std::string text_;
  grpc::Status status_;
  absl::Notification came_, ended_;
};

TEST(IntrospectionTest, HealthOfTheServiceAndItsParts) {
  auto server = StartServer();
  const auto channel = MakeChannel(server->target());
  for (const char* const part : {"", "ddprun.v1.Rendezvous", "ddprun.v1.Store"}) {
    RawStream call(channel, kCheck, HealthRequest(part));
    EXPECT_EQ(call.Reply(), kServing) << part;
  }
  RawStream unknown(channel, kCheck, HealthRequest("nobody"));
  EXPECT_EQ(unknown.End().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(IntrospectionTest, ReflectionNamesTheServicesAndTheirMessages) {
  auto server = StartServer();
  const auto channel = MakeChannel(server->target());
  RawStream services(channel, kReflect, kListServices);
  EXPECT_THAT(services.Reply(), AllOf(HasSubstr("ddprun.v1.Rendezvous"),
                                      HasSubstr("ddprun.v1.Store"), HasSubstr("Health")));
  RawStream file(channel, kReflect, FileContaining("ddprun.v1.Rendezvous"));
  EXPECT_THAT(file.Reply(), AllOf(HasSubstr("proto/ddprun.proto"), HasSubstr("ReportLoss")));
}

TEST(IntrospectionTest, NobodyWithoutTheRunsCertificateIsAnswered) {
  const TestAuthority ours("ours");
  const TestAuthority theirs("theirs");
  auto server =
      RendezvousServer::Start({.address = "127.0.0.1",
                               .port = 0,
                               .credentials = ours.Issue({.alternative_name = "IP:127.0.0.1"}),
                               .default_run_id = "run"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& target = (*server)->target();
  TlsCredentials foreign = theirs.Issue({});
  foreign.ca_pem = ours.Issue({}).ca_pem;
  const std::optional<TlsCredentials> strangers[] = {std::nullopt, foreign};
  for (const auto& credentials : strangers) {
    for (const char* const method : {kCheck, kReflect}) {
      RawStream call(MakeChannel(target, credentials), method, kListServices,
                     std::chrono::seconds(5));
      EXPECT_EQ(call.Reply(), "");
      EXPECT_FALSE(call.End().ok());
    }
  }
  RawStream call(MakeChannel(target, ours.Issue({})), kCheck, "");
  EXPECT_EQ(call.Reply(), kServing);
}

// A connection that makes no call is closed after that time; these calls must count as such.
TEST(IntrospectionTest, AWatchIsACall_RealTime) {
  auto server = StartServer();
  RawStream watch(MakeChannel(server->target()), kWatch, "",
                  kHandshakeTimeout + std::chrono::seconds(2));
  EXPECT_EQ(watch.Reply(), kServing);
  EXPECT_EQ(watch.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "our own deadline";
}

TEST(IntrospectionTest, ReflectionHoldsFewThreads) {
  auto server = StartServer();
  // Each is answered and stays open.
  std::vector<std::unique_ptr<RawStream>> open;
  std::string reply;
  do {
    open.push_back(
        std::make_unique<RawStream>(MakeChannel(server->target()), kReflect, kListServices));
    reply = open.back()->Reply();
  } while (!reply.empty() && open.size() < 2 * kReflectionThreadsMax);
  ASSERT_EQ(reply, "");
  EXPECT_EQ(open.back()->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  TestNode node(server->target(), MakeJoin("a", 1));
  EXPECT_TRUE(node.Next<Start>()) << "nodes do not wait for those";
}

}  // namespace
}  // namespace ddprun
