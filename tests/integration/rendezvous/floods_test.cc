// SPDX-License-Identifier: Apache-2.0
// Few bytes that used to take gigabytes: messages of many small parts, and HTTP/2 frames without an
// end. The service's memory stays within bounds, the connection or stream ends, and a good node is
// served afterwards. Each flood is of a bounded size.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "proto/ddprun.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/service_program.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/memory_peak.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
constexpr seconds kPatience{20};
#ifdef __SANITIZE_ADDRESS__  // keeps what is freed
constexpr std::size_t kMemoryMax = std::size_t{4} << 30;
#else
constexpr std::size_t kMemoryMax = 300u << 20;
#endif

Token TheToken() { return *Token::Parse(kToken, "it"); }

void ExpectServes(const ServiceProgram& service, std::optional<TlsCredentials> credentials) {
  Join join = MakeJoin("good", 1);
  TestNode node(service.target(), join, kEventDeadline, std::move(credentials));
  const auto start = node.Next<Start>();
  ASSERT_TRUE(start);
  node.Send(NodeSucceeded{start->round});
  EXPECT_TRUE(node.Next<Finish>());
}

// ---- Messages

std::string Repeated(const std::string& piece, std::size_t bytes) {
  std::string all;
  all.reserve(bytes + piece.size());
  while (all.size() + piece.size() <= bytes) all += piece;
  return all;
}

// A field of that number which holds `content`.
std::string Field(int number, const std::string& content) {
  const auto varint = [](std::size_t value) {
    std::string bytes;
    for (; value >= 128; value /= 128) bytes += static_cast<char>(0x80 | (value % 128));
    return bytes + static_cast<char>(value);
  };
  return varint(static_cast<std::size_t>(number << 3 | 2)) + varint(content.size()) + content;
}

struct Bomb {
  const char* name;
  const char* method;
  std::string message;
  const char* answer = "more than 64 MB of memory";
};

std::vector<Bomb> Bombs() {
  const std::size_t bytes = kMessageBytesMax - 4096;
  const auto empty = [&](int field) { return Repeated(Field(field, ""), bytes); };
  v1::StoreRequests hello;
  hello.mutable_hello()->set_protocol_version(kProtocolVersion);
  hello.mutable_hello()->set_node_id("id-bad");
  return {
      {"empty requests", kStorePath,
       hello.SerializeAsString() + empty(v1::StoreRequests::kRequestsFieldNumber)},
      {"empty keys", kStorePath,
       Field(v1::StoreRequests::kRequestsFieldNumber,
             Field(v1::StoreRequest::kOpFieldNumber, empty(v1::StoreOp::kKeysFieldNumber)))},
      {"answered ids", kStorePath,
       Field(v1::StoreRequests::kAnsweredFieldNumber, std::string(bytes, '\1'))},
      {"empty lines", kSessionPath,
       Field(v1::Report::kLogLinesFieldNumber, empty(v1::LogLines::kLinesFieldNumber))},
      {"last lines of a failure", kSessionPath,
       Field(v1::Report::kWorkerFailedFieldNumber,
             Field(v1::WorkerFailed::kFailureFieldNumber,
                   empty(v1::Failure::kLastLinesFieldNumber)))},
      {"ends of workers", kSessionPath,
       Field(v1::Report::kNodeStoppedFieldNumber, empty(v1::NodeStopped::kEndsFieldNumber))},
      {"names of nodes", "/ddprun.v1.Control/WatchRun",
       empty(v1::WatchRunRequest::kNodesFieldNumber), ""},  // gRPC ends such a call without words
  };
}

// Sends one message on a call of its own and reads until the call ends; what came, as text.
std::string SendOne(const std::shared_ptr<grpc::Channel>& channel, const Bomb& bomb) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto call = stub.PrepareCall(&context, bomb.method, &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  std::string heard;
  call->StartCall(nullptr);
  if (next()) {
    const grpc::Slice slice(bomb.message);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    next();
    for (bool more = true; more;) {
      grpc::ByteBuffer buffer;
      call->Read(&buffer, nullptr);
      more = next();
      grpc::Slice piece;
      if (more && buffer.DumpToSingleSlice(&piece).ok()) {
        heard.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
      }
    }
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << bomb.name;
  return heard + status.error_message();
}

TEST(FloodsTest, MessagesOfManySmallParts) {
  ServiceProgram service({}, {{"DDPRUN_TOKEN", kToken}});
  const TlsCredentials bad = *MintNodeCredentials(TheToken(), "run", "id-bad");
  const auto channel = MakeChannel(service.target(), bad);
  for (const Bomb& bomb : Bombs()) {
    EXPECT_THAT(SendOne(channel, bomb), HasSubstr(bomb.answer)) << bomb.name;
    EXPECT_LT(PeakBytes(service.pid()), kMemoryMax) << bomb.name;
  }
  ExpectServes(service, *MintNodeCredentials(TheToken(), "run", "id-good"));
}

// Small enough to be parsed, and not kept by the streams that they came on.
TEST(FloodsTest, WhatAMessageTookIsGivenBack) {
  ServiceProgram service({}, {{"DDPRUN_TOKEN", kToken}});
  const auto channel =
      MakeChannel(service.target(), *MintNodeCredentials(TheToken(), "run", "id-bad"));
  for (int i = 0; i < 20; ++i) {
    const Bomb bomb{"many operations", kStorePath,
                    Repeated(Field(v1::StoreRequests::kRequestsFieldNumber, ""), 200'000)};
    EXPECT_THAT(SendOne(channel, bomb), HasSubstr("at most 4096 are allowed"));
  }
  EXPECT_LT(PeakBytes(service.pid()), kMemoryMax);
  ExpectServes(service, *MintNodeCredentials(TheToken(), "run", "id-good"));
}

// ---- Frames

// Sends `piece` again and again until it was sent `times` times or the service has closed the
// connection or reads no more; false: it was sent.
bool Flood(HostilePeer& peer, const std::string& begin,
           const std::function<std::string(int)>& piece, int times) {
  if (!peer.Send(begin)) return true;
  std::string bytes;
  for (int i = 0; i < times; ++i) {
    bytes += piece(i);
    if (bytes.size() < 1 << 16) continue;
    if (!peer.Send(bytes)) return true;
    bytes.clear();
  }
  return !peer.Send(bytes);
}

struct FrameFlood {
  const char* name;
  std::string begin;
  std::function<std::string(int)> piece;
  int times;
};

std::vector<FrameFlood> FrameFloods() {
  const std::string begin = std::string(kHttp2Preface) + Http2Frame(4, 0, 0, "");
  const std::string call = CallHeaders(kSessionPath);
  const auto stream = [](int i) { return static_cast<std::uint32_t>(2 * i + 1); };
  return {
      // 500 MB of headers that are never whole; each is within what a frame's headers may have.
      {"Continuation", begin + Http2Frame(1, 0, 1, call),
       [](int i) {
         return Http2Frame(9, 0, 1, Header("x" + std::to_string(i), std::string(4000, 'x')));
       },
       125'000},
      {"RapidReset", begin,
       [=](int i) {
         return Http2Frame(1, 4, stream(i), call) +
                Http2Frame(3, 0, stream(i), std::string("\0\0\0\x08", 4));
       },
       100'000},
      {"CallsWithoutAnEnd", begin, [=](int i) { return Http2Frame(1, 4, stream(i), call); },
       100'000},
  };
}

// gRPC does not read on from a peer that reads no answers, and data without content costs it only
// time.
std::vector<FrameFlood> BoundedFloods() {
  const std::string begin = std::string(kHttp2Preface) + Http2Frame(4, 0, 0, "");
  return {
      {"Pings", begin, [](int) { return Http2Frame(6, 0, 0, "pingping"); }, 10'000'000},
      {"Settings", begin, [](int) { return Http2Frame(4, 0, 0, ""); }, 10'000'000},
      {"EmptyData", BeginCall(kSessionPath), [](int) { return Http2Frame(0, 0, 1, ""); },
       2'000'000},
  };
}

class FrameFloodsTest : public ::testing::TestWithParam<FrameFlood> {
 protected:
  // Floods from a member, over TLS, and from anybody, in plain text.
  static void ExpectBounded(bool must_end) {
    for (const bool tls : {true, false}) {
      ServiceProgram service(
          tls ? std::vector<std::string>{} : std::vector<std::string>{"--insecure"},
          {{"DDPRUN_TOKEN", kToken}});
      HostilePeer peer(service.port(), must_end ? 10 : 3);
      if (tls) {
        ASSERT_TRUE(
            peer.StartTls({.credentials = *MintNodeCredentials(TheToken(), "run", "id-bad")}));
      }
      const bool cut = Flood(peer, GetParam().begin, GetParam().piece, GetParam().times);
      if (must_end) {
        EXPECT_TRUE(cut || peer.Receive(kPatience).closed);
      }
      EXPECT_LT(PeakBytes(service.pid()), kMemoryMax);
      ExpectServes(service, tls ? std::optional(*MintNodeCredentials(TheToken(), "run", "id-good"))
                                : std::nullopt);
    }
  }
};

TEST_P(FrameFloodsTest, EndTheConnection) { ExpectBounded(/*must_end=*/true); }

INSTANTIATE_TEST_SUITE_P(Floods, FrameFloodsTest, ::testing::ValuesIn(FrameFloods()),
                         [](const auto& flood) { return std::string(flood.param.name); });

class BoundedFloodsTest : public FrameFloodsTest {};

TEST_P(BoundedFloodsTest, TakeNoMemory) { ExpectBounded(/*must_end=*/false); }

INSTANTIATE_TEST_SUITE_P(Floods, BoundedFloodsTest, ::testing::ValuesIn(BoundedFloods()),
                         [](const auto& flood) { return std::string(flood.param.name); });

// ---- Metrics

int FreePort() {
  const OwnedFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

TEST(HalfRequestsTest, DoNotHoldTheMetricsUp) {
  const int port = FreePort();
  ServiceProgram service({"--metrics-port", std::to_string(port)}, {{"DDPRUN_TOKEN", kToken}});
  std::vector<std::unique_ptr<HostilePeer>> halves;
  for (int i = 0; i < 64; ++i) {
    halves.push_back(std::make_unique<HostilePeer>(port));
    EXPECT_TRUE(halves.back()->Send("GET /metrics HTTP/1.1\r\nHost: x\r\n"));
  }
  const auto begin = std::chrono::steady_clock::now();
  HostilePeer scraper(port);
  scraper.Send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(scraper.Receive(kPatience, "ddprun_build_info").bytes,
              HasSubstr("ddprun_build_info"));
  // 64 of them on 16 threads have 500 ms each: 2 s. The HTTP server's own 30 s would make it 120.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

}  // namespace
}  // namespace ddprun
