// SPDX-License-Identifier: Apache-2.0
// Everything that somebody might throw at a service, in three tables: by how far the thrower gets.
// After each row the same process must serve a good node, and as the first one of its run: what was
// thrown has made nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "absl/strings/str_format.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/service_program.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/certificates.h"
#include "tests/testing/client_hello.h"
#include "tests/testing/hostile_peer.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
constexpr char kOtherToken[] = "10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
// The name that all throwers use and that nobody may have got.
constexpr char kRun[] = "prize";
// The listener gives a peer kHandshakeTimeout to make itself known; a little more than that.
constexpr milliseconds kPatience = std::chrono::seconds(8);

Token TokenOf(const char* digits) { return *Token::Parse(digits, "it"); }

class HostileTest : public ::testing::Test {
 protected:
  // One service for all rows of a table: damage adds up.
  explicit HostileTest(std::vector<std::string> flags = {})
      : insecure_(!flags.empty()), service_(std::move(flags), {{"DDPRUN_TOKEN", kToken}}) {}

  void ExpectServesAGoodNode(const std::string& after) {
    Join join = MakeJoin("good", 1);
    join.run_id = kRun;
    join.node_rank = 0;
    std::optional<TlsCredentials> credentials;
    if (!insecure_) credentials = *MintNodeCredentials(TokenOf(kToken), kRun, "id-good");
    TestNode node(service_.target(), join, kEventDeadline, std::move(credentials));
    const auto start = node.Next<Start>();
    ASSERT_TRUE(start) << "after: " << after;
    EXPECT_EQ(ToNumber(start->round), 1u) << "after: " << after;
    node.Send(NodeSucceeded{start->round});
    EXPECT_TRUE(node.Next<Finish>()) << "after: " << after;
  }

  const bool insecure_;
  ServiceProgram service_;
};

std::string Bytes(const char* text, std::size_t size) { return {text, size}; }
#define BYTES(text) Bytes(text, sizeof(text) - 1)

std::string Noise(std::size_t size) {
  std::string noise;
  std::uint32_t state = 42;
  while (noise.size() < size) {
    state = state * 1664525 + 1013904223;
    noise.push_back(static_cast<char>(state >> 24));
  }
  return noise;
}

std::string JoinMessage(const std::function<void(v1::Join&)>& change = nullptr) {
  v1::Report report;
  v1::Join& join = *report.mutable_join();
  join.set_protocol_version(kProtocolVersion);
  join.set_software_version(kSoftwareVersion);
  join.set_run_id(kRun);
  join.set_node_id("id-bad");
  join.set_host("bad");
  join.set_local_world_size(1);
  join.set_nodes_min(2);
  join.set_nodes_max(2);
  join.set_address("127.0.0.1");
  join.set_worker_port(4000);
  join.mutable_join_timeout()->set_seconds(60);
  if (change) change(join);
  return report.SerializeAsString();
}

// ---- 1. Who has no certificate and does not even speak TLS

struct Thrown {
  const char* name;
  std::string bytes;
  bool ends = false;  // and then ends its side
};

std::vector<Thrown> ThrownBytes() {
  const std::string hello = MakeClientHello("", TLS1_3_VERSION);
  std::string longer = hello;  // says that it is longer than its record
  longer[6] = '\x7f';
  std::string overrun = hello;  // the last extension says it goes on beyond the end
  overrun.replace(overrun.size() - 40, 4, "\xff\xff\xff\xff");
  return {
      {"nothing at all", "", true},
      {"one byte", "\x16", true},
      {"noise", Noise(65536)},
      {"zeros", std::string(65536, '\0')},
      {"HTTP/1 GET", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"HTTP/1 upgrade to h2c",
       "GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"},
      {"HTTP/1 POST without an end",
       "POST / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n" + std::string(1 << 20, 'x')},
      {"SSH banner", "SSH-2.0-OpenSSH_9.2p1\r\n"},
      {"redis", "*1\r\n$4\r\nPING\r\n"},
      {"SMB negotiation", BYTES("\x00\x00\x00\x85\xffSMBr\x00\x00\x00\x00")},
      {"RDP cookie", BYTES("\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00")},
      {"c10d's TCPStore handshake", BYTES("\x00\xb1\x55\x60\x3c\x00\x00\x00\x00")},
      {"a pickle", BYTES("\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94")},
      {"gRPC message without HTTP/2", GrpcMessage(JoinMessage())},
      {"a good join in plain text", BeginCall(kSessionPath) + GrpcMessage(JoinMessage())},
      {"HTTP/2 preface cut short", "PRI * HTTP/2.0\r\n\r\nSM", true},
      {"HTTP/2 preface, then noise", kHttp2Preface + Noise(65536)},
      {"HTTP/2 preface, then pings without an end",
       [] {
         std::string pings = kHttp2Preface;
         for (int i = 0; i < 10'000; ++i) pings += Http2Frame(6, 0, 0, "pingping");
         return pings;
       }()},
      {"TLS hello cut short", hello.substr(0, hello.size() / 2), true},
      {"TLS hello longer than its record", longer},
      {"TLS hello with lengths that overrun it", overrun},
      {"TLS hello, then noise", hello + Noise(4096)},
      {"TLS hello twice", hello + hello},
      {"TLS hello in records of one byte",
       [&] {
         std::string pieces;
         for (const char byte : hello.substr(5)) pieces += BYTES("\x16\x03\x01\x00\x01") + byte;
         return pieces;
       }()},
      {"TLS record without content", BYTES("\x16\x03\x01\x00\x00")},
      {"TLS record of 64 KB", BYTES("\x16\x03\x01\xff\xff\x01") + std::string(65536, 'x')},
      {"TLS finished first", BYTES("\x16\x03\x03\x00\x04\x14\x00\x00\x00")},
      {"TLS alert first", BYTES("\x15\x03\x03\x00\x02\x02\x28")},
      {"TLS application data first", BYTES("\x17\x03\x03\x00\x05hello")},
      {"TLS heartbeat that asks for 16 KB", BYTES("\x18\x03\x02\x00\x03\x01\x40\x00")},
      {"SSL 2 hello", BYTES("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80")},
      {"TLS 1.2 at most", MakeClientHello("", TLS1_2_VERSION)},
      {"SSL 3", BYTES("\x16\x03\x00\x00\x2d\x01\x00\x00\x29\x03\x00") + std::string(37, '\0')},
  };
}

class HostileBytesTest : public HostileTest {};

TEST_F(HostileBytesTest, AllAreClosedAndMakeNothing) {
  const std::vector<Thrown> rows = ThrownBytes();
  std::vector<std::unique_ptr<HostilePeer>> peers;
  for (const Thrown& row : rows) {
    peers.push_back(std::make_unique<HostilePeer>(service_.port()));
    peers.back()->Send(row.bytes);  // may be cut off in the middle
    if (row.ends) peers.back()->EndSending();
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto received = peers[i]->Receive(kPatience);
    EXPECT_TRUE(received.closed) << rows[i].name;
    EXPECT_THAT(received.bytes, Not(HasSubstr("waiting for"))) << rows[i].name;
    ExpectServesAGoodNode(rows[i].name);
  }
}

TEST_F(HostileBytesTest, ThoseWhoComeInPlainTextReadWhy) {
  HostilePeer peer(service_.port());
  peer.Send(BeginCall(kSessionPath) + GrpcMessage(JoinMessage()));
  EXPECT_THAT(peer.Receive(kPatience).bytes, HasSubstr("speaks TLS"));
  HostilePeer old(service_.port());
  old.Send(MakeClientHello("", TLS1_2_VERSION));
  EXPECT_EQ(old.Receive(kPatience).bytes, BYTES("\x15\x03\x03\x00\x02\x02\x46"));
}

// ---- 2. Who speaks TLS and is not of this run

TEST_F(HostileTest, CertificatesThatAreNotOfThisRun) {
  const TestAuthority foreign("ddprun run");
  const TlsCredentials node = *MintNodeCredentials(TokenOf(kToken), kRun, "id-bad");
  const std::pair<const char*, HostilePeer::Tls> rows[] = {
      {"no certificate", {}},
      {"a certificate of another token",
       {.credentials = *MintNodeCredentials(TokenOf(kOtherToken), kRun, "id-bad")}},
      {"a self-signed one",
       {.credentials = foreign.Issue({.name = "ddprun node",
                                      .alternative_name = "URI:ddprun://run/prize/node/id-bad",
                                      .self_signed = true})}},
      {"one of a foreign authority",
       {.credentials = foreign.Issue({.alternative_name = "URI:ddprun://run/prize/node/id-bad"})}},
      {"an expired one of a foreign authority",
       {.credentials = foreign.Issue({.not_after = "20010101000000Z"})}},
      {"the service's own, used by a node",
       {.credentials = *MintServiceCredentials(TokenOf(kToken))}},
      {"a good one over TLS 1.2", {.credentials = node, .version_max = TLS1_2_VERSION}},
      {"a good one over TLS 1.1", {.credentials = node, .version_max = TLS1_1_VERSION}},
      {"a good one, for no protocol", {.credentials = node, .alpn = false}},
  };
  for (const auto& [name, tls] : rows) {
    HostilePeer peer(service_.port());
    if (peer.StartTls(tls)) peer.Send(BeginCall(kSessionPath) + GrpcMessage(JoinMessage()));
    const auto received = peer.Receive(kPatience);
    EXPECT_TRUE(received.closed) << name;
    EXPECT_THAT(received.bytes, Not(HasSubstr("waiting for"))) << name;
    ExpectServesAGoodNode(name);
  }
}

// ---- 3. Who is let in, and misbehaves

std::string Repeat(int times, const std::function<std::string(int)>& piece) {
  std::string all;
  for (int i = 0; i < times; ++i) all += piece(i);
  return all;
}

std::string StoreMessage(const std::function<void(v1::StoreRequest&)>& change) {
  v1::StoreRequests message;
  v1::StoreRequest& request = *message.add_requests();
  request.set_id(1);
  change(request);
  return GrpcMessage(message.SerializeAsString());
}

std::string HelloMessage(const std::function<void(v1::StoreHello&)>& change) {
  v1::StoreRequests message;
  v1::StoreHello& hello = *message.mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_id("id-bad");
  hello.set_stream(1);
  change(hello);
  return GrpcMessage(message.SerializeAsString());
}

std::string Hello(const std::string& run_id) {
  return HelloMessage([&](v1::StoreHello& hello) { hello.set_run_id(run_id); });
}

std::string ChangedJoin(const std::function<void(v1::Join&)>& change) {
  return BeginCall(kSessionPath) + GrpcMessage(JoinMessage(change));
}

struct Misdeed {
  const char* name;
  std::string bytes;
  const char* answer = "";  // a part of it, as far as people see it
};

// What the frames and the headers of HTTP/2 allow.
std::vector<Misdeed> Http2Misdeeds() {
  const std::string begin = std::string(kHttp2Preface) + Http2Frame(4, 0, 0, "");
  const std::string call = CallHeaders(kSessionPath);
  const auto stream = [](int i) { return static_cast<std::uint32_t>(2 * i + 1); };
  return {
      {"a frame of 16 MB", begin + BYTES("\xff\xff\xff\x00\x00\x00\x00\x00\x01") + Noise(65536)},
      {"noise for frames", begin + Noise(65536)},
      {"headers of 1 MB",
       begin + Http2Frame(1, 0, 1, call) +
           Repeat(64,
                  [](int) { return Http2Frame(9, 0, 1, Header("x", std::string(16000, 'x'))); })},
      {"continuation without an end",
       begin + Http2Frame(1, 0, 1, call) +
           Repeat(20'000, [](int) { return Http2Frame(9, 0, 1, ""); })},
      {"a continuation without headers", begin + Http2Frame(9, 4, 1, call)},
      {"an HPACK index that does not exist", begin + Http2Frame(1, 4, 1, "\xff\xff\xff\xff\x7f")},
      {"an HPACK table of 4 GB", begin + Http2Frame(1, 4, 1, "\x3f\xff\xff\xff\xff\x0f")},
      {"a header cut short", begin + Http2Frame(1, 4, 1, BYTES("\x00\x7f\xff\xff"))},
      {"rapid reset", begin + Repeat(10'000,
                                     [&](int i) {
                                       return Http2Frame(1, 4, stream(i), call) +
                                              Http2Frame(3, 0, stream(i), BYTES("\0\0\0\x08"));
                                     })},
      {"streams without an end",
       begin + Repeat(10'000, [&](int i) { return Http2Frame(1, 4, stream(i), call); })},
      {"pings without an end",
       begin + Repeat(50'000, [](int) { return Http2Frame(6, 0, 0, "pingping"); })},
      {"settings without an end",
       begin + Repeat(20'000, [](int) { return Http2Frame(4, 0, 0, ""); })},
      {"empty data without an end",
       BeginCall(kSessionPath) + Repeat(20'000, [](int) { return Http2Frame(0, 0, 1, ""); })},
      {"a window that overflows",
       begin + Repeat(4, [](int) { return Http2Frame(8, 0, 0, BYTES("\x7f\xff\xff\xff")); })},
      {"a stream that depends on itself",
       begin + Http2Frame(2, 0, 1, BYTES("\x80\x00\x00\x01\xff"))},
      {"data on a stream that is not open", begin + Http2Frame(0, 0, 99, "data")},
      {"te that is not trailers", begin + Http2Frame(1, 4, 1, Header("te", "x") + call)},
      {"a scheme that is none", begin + Http2Frame(1, 4, 1, Header(":scheme", "ftp") + call)},
      {"grpclb_client_stats",
       begin + Http2Frame(1, 4, 1, call + Header("grpclb_client_stats", "x"))},
      {"pseudo headers last", begin + Http2Frame(1, 4, 1, Header("x", "y") + call + call)},
      {"a header name in capitals", begin + Http2Frame(1, 4, 1, call + Header("X-UP", "y"))},
      {"a timeout that is none", begin + Http2Frame(1, 4, 1, call + Header("grpc-timeout", "9x"))},
      {"HTTP/1 inside TLS", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"a method that does not exist", BeginCall("/ddprun.v1.Rendezvous/Root")},
  };
}

// What gRPC's and protobuf's encodings allow, and what the protocol's own fields do.
std::vector<Misdeed> MessageMisdeeds() {
  const auto session = [](const std::string& bytes) {
    return BeginCall(kSessionPath) + Http2Frame(0, 0, 1, bytes);
  };
  return {
      {"a message of 4 GB", session(BYTES("\0\xff\xff\xff\xff") + Noise(8192))},
      {"a message of 17 MB", session(BYTES("\0\x01\x10\x00\x00") + Noise(8192))},
      {"a compressed message that is none", session(BYTES("\x01\0\0\0\x05hello"))},
      {"a message cut short", session(BYTES("\0\0\0\x10\0half"))},
      {"noise for protobuf", BeginCall(kSessionPath) + GrpcMessage(Noise(8192))},
      {"a varint of 20 bytes",
       BeginCall(kSessionPath) + GrpcMessage("\x08" + std::string(19, '\xff') + "\x01")},
      {"a field of 2 GB", BeginCall(kSessionPath) + GrpcMessage("\x0a\xff\xff\xff\xff\x07x")},
      {"groups inside groups", BeginCall(kSessionPath) + GrpcMessage(std::string(5000, '\x0b'))},
      {"an empty report", BeginCall(kSessionPath) + GrpcMessage("")},
      {"fields that nobody knows",
       BeginCall(kSessionPath) + GrpcMessage(BYTES("\xfa\x3f\x03"
                                                   "abc")),
       "does not know"},
      {"a leave before the join", BeginCall(kSessionPath) + GrpcMessage(BYTES("\x2a\x02\x10\x01")),
       "must be Join"},
      {"a join of another version",
       ChangedJoin([](v1::Join& join) { join.set_protocol_version(4'000'000'000u); }),
       "speaks protocol 4000000000"},
      {"a join under another node's id",
       ChangedJoin([](v1::Join& join) { join.set_node_id("id-good"); }),
       "was made for another one"},
      {"a join with a host name of 10 KB",
       ChangedJoin([](v1::Join& join) { join.set_host(std::string(10'000, 'h')); }),
       "at most 256 are allowed"},
      {"a join without an address", ChangedJoin([](v1::Join& join) { join.clear_address(); }),
       "without its address"},
      {"a join of minus one worker",
       ChangedJoin([](v1::Join& join) { join.set_local_world_size(-1); }), "--nproc-per-node -1"},
      {"a join for two billion nodes",
       ChangedJoin([](v1::Join& join) { join.set_nodes_max(2'000'000'000); }), "--nnodes"},
      {"a join with a rank beyond all",
       ChangedJoin([](v1::Join& join) { join.set_node_rank(1 << 30); }), "out of range"},
      {"a join with a timeout before all time", ChangedJoin([](v1::Join& join) {
         join.mutable_join_timeout()->set_seconds(std::numeric_limits<std::int64_t>::min());
       }),
       "join timeout"},
      {"a host name that forges a line of the log", ChangedJoin([](v1::Join& join) {
         join.set_host("\x1b[2Jnode\r\nddprun: all is well\x07");
         join.set_protocol_version(99);
       }),
       "node node??ddprun: all is well? speaks"},
      {"a store of a run that is not there", BeginCall(kStorePath) + Hello("\x1b[31mnone"),
       "of run 'none', and its certificate was made for another one"},
      {"a store operation before the hello",
       BeginCall(kStorePath) + StoreMessage([](v1::StoreRequest& request) {
         request.mutable_op()->set_verb(v1::StoreOp::NUM_KEYS);
       }),
       "must have its hello"},
      {"a store hello of another version",
       BeginCall(kStorePath) +
           HelloMessage([](v1::StoreHello& hello) { hello.set_protocol_version(77); }),
       "speaks protocol 77"},
      {"noise for the store", BeginCall(kStorePath) + GrpcMessage(Noise(8192))},
  };
}

class HostileMemberTest : public HostileTest {
 protected:
  void Try(const Misdeed& row) {
    HostilePeer peer(service_.port());
    ASSERT_TRUE(
        peer.StartTls({.credentials = *MintNodeCredentials(TokenOf(kToken), kRun, "id-bad")}));
    peer.Send(row.bytes);
    const std::string answer = row.answer;
    if (answer.empty()) peer.EndSending();  // all of it is read before the end is
    EXPECT_THAT(peer.Receive(kPatience, answer).bytes, HasSubstr(answer)) << row.name;
    ExpectServesAGoodNode(row.name);
  }
};

TEST_F(HostileMemberTest, Http2) {
  for (const Misdeed& row : Http2Misdeeds()) Try(row);
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
  EXPECT_LT(service_.ResidentBytes(), 256u << 20);
#endif
}

TEST_F(HostileMemberTest, Messages) {
  for (const Misdeed& row : MessageMisdeeds()) Try(row);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(service_.ResidentBytes(), 128u << 20);
#endif
}

// A node that is in, with keys and values beyond the limits: each is answered, none is kept.
TEST_F(HostileMemberTest, KeyBombs) {
  Join join = MakeJoin("bad", 1);
  join.run_id = "bombs";
  TestNode node(service_.target(), join, kEventDeadline,
                *MintNodeCredentials(TokenOf(kToken), "bombs", "id-bad"));
  ASSERT_TRUE(node.Next<Start>());
  HostilePeer peer(service_.port());
  ASSERT_TRUE(
      peer.StartTls({.credentials = *MintNodeCredentials(TokenOf(kToken), "bombs", "id-bad")}));
  const auto set = [](std::uint64_t id, const std::string& key, const std::string& value) {
    return StoreMessage([&](v1::StoreRequest& request) {
      request.set_id(id);
      request.mutable_op()->set_verb(v1::StoreOp::SET);
      request.mutable_op()->set_round(1);
      request.mutable_op()->add_keys(key);
      request.mutable_op()->add_values(value);
    });
  };
  peer.Send(BeginCall(kStorePath) + Hello("bombs") + set(2, std::string(9000, 'k'), "v") +
            StoreMessage([](v1::StoreRequest& request) {
              request.set_id(3);
              request.mutable_op()->set_verb(v1::StoreOp::MULTI_SET);
              request.mutable_op()->set_round(1);
              for (int i = 0; i < 100; ++i) request.mutable_op()->add_keys(std::to_string(i));
            }) +
            StoreMessage([](v1::StoreRequest& request) {
              request.set_id(4);
              request.mutable_op()->set_verb(static_cast<v1::StoreOp::Verb>(99));
            }) +
            StoreMessage([](v1::StoreRequest& request) {
              request.set_id(5);
              request.mutable_op()->set_verb(v1::StoreOp::NUM_KEYS);
              request.mutable_op()->set_round(1);
            }));
  const std::string answers = peer.Receive(kPatience, BYTES("\x02\x08\x05")).bytes;
  EXPECT_THAT(answers, HasSubstr("9000"));                 // the key's size, and the limit
  EXPECT_THAT(answers, HasSubstr("store verb 99"));        // not known
  EXPECT_THAT(answers, HasSubstr(BYTES("\x02\x08\x05")));  // NUM_KEYS: no number, thus 0
  ExpectServesAGoodNode("key bombs");
}

// A node that is in, and fills its run's store to the brim: a million keys of a kilobyte each.
TEST_F(HostileMemberTest, KeyBombsToTheBrim) {
  constexpr std::size_t kBatch = 1000;
  constexpr std::size_t kBatchesMax = 1200;
  const TlsCredentials credentials = *MintNodeCredentials(TokenOf(kToken), "brim", "id-bad");
  Join join = MakeJoin("bad", 1);
  join.run_id = "brim";
  TestNode node(service_.target(), join, kEventDeadline, credentials);
  ASSERT_TRUE(node.Next<Start>());
  const TempDir folder;
  auto proxy = StoreProxy::Start({.socket_path = folder / "s",
                                  .channel = MakeServiceChannel(service_.target(), credentials),
                                  .run_id = "brim",
                                  .node_id = join.node_id});
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  (*proxy)->SetRound(RoundId{1});
  auto store = StoreClient::Connect({.target = "unix:" + (folder / "s"), .round = RoundId{1}});
  ASSERT_TRUE(store.ok()) << store.status();
  StoreOp set = MakeOp(StoreVerb::kMultiSet, {});
  set.values.assign(kBatch, std::string(1000, 'v'));
  std::size_t taken = 0;
  absl::Status status;
  for (std::size_t batch = 0; batch < kBatchesMax && status.ok(); ++batch) {
    set.keys.clear();
    for (std::size_t i = 0; i < kBatch; ++i) {
      set.keys.push_back(absl::StrFormat("%016d", batch * kBatch + i));
    }
    status = (*store)->Call(set).status;
    if (status.ok()) taken += kBatch;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(taken, 1'000'000u);
  EXPECT_EQ((*store)->Call(MakeOp(StoreVerb::kNumKeys, {})).number, taken) << "whole or not at all";
  EXPECT_LT(service_.ResidentBytes(), 2 * kStoreBytesMax);
  ExpectServesAGoodNode("key bombs to the brim");
}

// The same frames where anybody may come in: a service in plain text has only gRPC to stand on.
class HostilePlainTest : public HostileTest {
 protected:
  HostilePlainTest() : HostileTest({"--insecure"}) {}
};

TEST_F(HostilePlainTest, BytesAndFrames) {
  for (const Thrown& row : ThrownBytes()) {
    HostilePeer peer(service_.port());
    peer.Send(row.bytes);
    peer.EndSending();
    peer.Receive(kPatience);
    ExpectServesAGoodNode(row.name);
  }
  for (const Misdeed& row : Http2Misdeeds()) {
    HostilePeer peer(service_.port());
    peer.Send(row.bytes);
    peer.EndSending();
    peer.Receive(kPatience);
    ExpectServesAGoodNode(row.name);
  }
}

}  // namespace
}  // namespace ddprun
