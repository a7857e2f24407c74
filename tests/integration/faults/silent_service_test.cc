// SPDX-License-Identifier: Apache-2.0
// A service that takes a node's stream and then says nothing, as one does whose disk hangs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/session_convert.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Accepts the node on the first `accepted` streams and ends them. All other streams stay silent.
class SilentService final : public v1::Rendezvous::CallbackService {
 public:
  SilentService(int accepted, const Accepted& answer)
      : accepted_(accepted), answer_(ToProto(Directive(answer))) {}

  grpc::ServerBidiReactor<v1::Report, v1::Directive>* Session(
      grpc::CallbackServerContext* context) override {
    context->AddInitialMetadata(kServesHeader, "");
    return new Stream(streams_++ < accepted_ ? &answer_ : nullptr);
  }
  int streams() const { return streams_; }

 private:
  class Stream final : public grpc::ServerBidiReactor<v1::Report, v1::Directive> {
   public:
    explicit Stream(const v1::Directive* answer) {
      StartSendInitialMetadata();
      if (answer != nullptr) StartWrite(answer);
    }
    void OnWriteDone(bool /*ok*/) override { Finish(grpc::Status::OK); }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  const int accepted_;
  const v1::Directive answer_;
  std::atomic<int> streams_{0};
};

class SilentServiceTest : public ::testing::Test {
 protected:
  void Serve(int accepted, const Accepted& answer = {}) {
    service_ = std::make_unique<SilentService>(accepted, answer);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  void Open(milliseconds join_timeout) {
    client_ = SessionClient::Open(MakeServiceChannel("127.0.0.1:" + std::to_string(port_)),
                                  MakeJoin("a", 1), join_timeout,
                                  [this](SessionEvent event) { events_.Add(std::move(event)); });
  }

  int port_ = 0;
  std::unique_ptr<SilentService> service_;
  std::unique_ptr<grpc::Server> server_;
  SeenEvents events_;
  std::unique_ptr<SessionClient> client_;
};

TEST_F(SilentServiceTest, KeepsANodeNoLongerThanTheJoinTimeout) {
  Serve(0);
  Open(milliseconds(300));
  const auto ended = events_.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended->status.message()),
              HasSubstr("accepted the connection but sent nothing within 0.3 s"));
}

TEST_F(SilentServiceTest, KeepsANodeThatComesBackNoLongerThanItsLease) {
  Accepted answer;
  answer.lease = milliseconds(500);
  answer.heartbeat = milliseconds(100);
  Serve(1, answer);
  Open(std::chrono::seconds(20));
  ASSERT_TRUE(events_.Next<Accepted>());
  const auto ended = events_.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_GE(service_->streams(), 2);
  EXPECT_THAT(std::string(ended->status.message()), HasSubstr("sent nothing within 0.5 s"));
}

}  // namespace
}  // namespace ddprun
