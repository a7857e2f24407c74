// SPDX-License-Identifier: Apache-2.0
// Who gets in, and what those are told who do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/observe/run_event.h"
#include "rendezvous/proxy/store_upstream.h"
#include "rendezvous/tcpstore/store_client.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/raw_server.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/certificates.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kOne[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
constexpr char kOther[] = "10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

TlsCredentials NodeOf(const char* token, const std::string& node_id,
                      const std::string& run_id = "run") {
  return *MintNodeCredentials(*Token::Parse(token, "it"), run_id, node_id);
}

std::unique_ptr<RendezvousServer> Serve(std::optional<TlsCredentials> credentials) {
  auto server = RendezvousServer::Start({.address = "127.0.0.1",
                                         .port = 0,
                                         .credentials = std::move(credentials),
                                         .default_run_id = "run"});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::unique_ptr<RendezvousServer> ServeToken() {
  return Serve(*MintServiceCredentials(*Token::Parse(kOne, "it")));
}

// Ends a node's try at once, with one sentence; says it.
std::string Complaint(TestNode& node) {
  const auto ended = node.Next<SessionEnded>();
  if (!ended) return "no end";
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kFailedPrecondition) << ended->status;
  return std::string(ended->status.message());
}

// Whatever was tried before, it left nothing behind: a node alone is the first and only one.
void ExpectUntouched(RendezvousServer& server, std::optional<TlsCredentials> credentials) {
  TestNode node(server.target(), MakeJoin("good", 1), kEventDeadline, std::move(credentials));
  const auto start = node.Next<Start>();
  ASSERT_TRUE(start);
  EXPECT_EQ(ToNumber(start->round), 1u);
  node.Send(NodeSucceeded{start->round});
  EXPECT_TRUE(node.Next<Finish>());
}

TEST(SecurityTest, TheSameTokenOnBothSides) {
  auto server = ServeToken();
  ExpectUntouched(*server, NodeOf(kOne, "id-good"));
}

TEST(SecurityTest, AnotherTokenIsSaidAndNotTriedAgain) {
  auto server = ServeToken();
  TestNode node(server->target(), MakeJoin("a", 1), kEventDeadline, NodeOf(kOther, "id-a"));
  EXPECT_EQ(Complaint(node),
            "the rendezvous service at " + server->target() +
                " has another token: copy ~/.config/ddprun/token from that host to this one (or "
                "set DDPRUN_TOKEN on both)");
  ExpectUntouched(*server, NodeOf(kOne, "id-good"));
}

// ---- Clocks that differ by more than certificates are valid

constexpr std::time_t kYear = 365L * 24 * 3600;

// As a node would that has this time.
TlsCredentials NodeAt(std::time_t time) {
  return *MintNodeCredentials(*Token::Parse(kOne, "it"), "run", "id-a", time);
}

class SeenRejections final : public RunWatcher {
 public:
  void OnNotice(const std::string&, const RunNotice& note) override {
    if (note.kind != NoticeKind::kNodeRefused) return;
    absl::MutexLock lock(&mutex_);
    words_ = note.words;
  }
  void OnStoreOperations(const std::string&, std::size_t) override {}

  std::string Next() {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](std::string* words) { return !words->empty(); }, &words_),
                            absl::FromChrono(kEventDeadline));
    return std::exchange(words_, "");
  }

 private:
  absl::Mutex mutex_;
  std::string words_;
};

TEST(SecurityTest, ANodeWhoseClockIsAYearBehindIsSaidOnBothSides) {
  SeenRejections rejections;
  auto server =
      RendezvousServer::Start({.address = "127.0.0.1",
                               .credentials = *MintServiceCredentials(*Token::Parse(kOne, "it")),
                               .default_run_id = "run",
                               .watcher = &rejections});
  ASSERT_TRUE(server.ok()) << server.status();
  TestNode node((*server)->target(), MakeJoin("a", 1), kEventDeadline,
                NodeAt(std::time(nullptr) - kYear));
  EXPECT_EQ(Complaint(node),
            "the rendezvous service at " + (*server)->target() +
                " finds this program's certificate expired: the clocks of this machine and of that "
                "one differ by more than 90 days, or this program was started longer ago; set both "
                "clocks, e.g. by NTP, and start it again");
  EXPECT_EQ(rejections.Next(),
            "its certificate expired 275 days ago by this host's clock: the clocks of the two "
            "machines differ, or it was started more than 90 days ago; set both clocks, e.g. by "
            "NTP, and start it again (it is at 127.0.0.1)");
  ExpectUntouched(**server, NodeOf(kOne, "id-good"));
}

TEST(SecurityTest, ANodeWhoseClockIsAYearAheadOfTheHostsIsSaidOnBothSides) {
  for (const std::time_t node_is_ahead : {kYear, std::time_t{0}}) {
    // That is so for the others where the host's clock is behind.
    const std::time_t host_time = std::time(nullptr) + node_is_ahead - kYear;
    SeenRejections rejections;
    auto server = RendezvousServer::Start(
        {.address = "127.0.0.1",
         .credentials = *MintHostCredentials(*Token::Parse(kOne, "it"), host_time),
         .default_run_id = "run",
         .watcher = &rejections});
    ASSERT_TRUE(server.ok()) << server.status();
    TestNode node((*server)->target(), MakeJoin("a", 1), kEventDeadline,
                  NodeAt(std::time(nullptr) + node_is_ahead));
    EXPECT_EQ(Complaint(node),
              "the rendezvous service at " + (*server)->target() +
                  " has a certificate that has expired by this machine's clock: the clocks of this "
                  "machine and of that one differ by more than 90 days, or the service was started "
                  "longer ago; set both clocks, e.g. by NTP, and start both again");
    EXPECT_EQ(rejections.Next(),
              "by its clock this service's certificate expired 275 days ago: the clocks of the two "
              "machines differ, or this service was started more than 90 days ago; set both "
              "clocks, e.g. by NTP, and start both again (it is at 127.0.0.1)");
  }
}

TEST(SecurityTest, ANodeIsAheadOfAServiceThatRunsAlone) {
  auto server = ServeToken();
  ExpectUntouched(*server, *MintNodeCredentials(*Token::Parse(kOne, "it"), "run", "id-good",
                                                std::time(nullptr) + kYear));
}

TEST(SecurityTest, PlainTextToAServiceWithTls) {
  auto server = ServeToken();
  TestNode node(server->target(), MakeJoin("a", 1));
  EXPECT_THAT(Complaint(node), HasSubstr("speaks TLS and this node plain text; start this node "
                                         "without --insecure, or that one with it"));
  ExpectUntouched(*server, NodeOf(kOne, "id-good"));
}

TEST(SecurityTest, TlsToAServiceInPlainText) {
  auto server = Serve(std::nullopt);
  TestNode node(server->target(), MakeJoin("a", 1), kEventDeadline, NodeOf(kOne, "id-a"));
  EXPECT_THAT(Complaint(node),
              HasSubstr("speaks plain text; start it without --insecure, or this node with it"));
  ExpectUntouched(*server, std::nullopt);
}

TEST(SecurityTest, WhatIsNoDdprunAtAll) {
  for (const char* const answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    for (const bool tls : {true, false}) {
      RawServer other(answer);
      TestNode node(other.target(), MakeJoin("a", 1), kEventDeadline,
                    tls ? std::optional(NodeOf(kOne, "id-a")) : std::nullopt);
      EXPECT_EQ(Complaint(node), "what answers at " + other.target() +
                                     " is not a ddprun rendezvous service; check the address and "
                                     "the port");
    }
  }
}

TEST(SecurityTest, APeerThatHangsUpIsTriedAgain) {
  RawServer other("");
  TestNode node(other.target(), MakeJoin("a", 1), std::chrono::milliseconds(500),
                NodeOf(kOne, "id-a"));
  const auto connecting = node.Next<Connecting>();
  ASSERT_TRUE(connecting);
  EXPECT_THAT(connecting->reason, HasSubstr("closes them at once"));
  EXPECT_EQ(node.Next<SessionEnded>()->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(other.connections(), 2);
}

TEST(SecurityTest, AnotherNodesIdIsRefused) {
  auto server = ServeToken();
  TestNode node(server->target(), MakeJoin("a", 1), kEventDeadline, NodeOf(kOne, "id-b"));
  const auto refused = node.Next<Refused>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(
      std::string(refused->status.message()),
      HasSubstr("calls itself 'id-a' of run 'run', and its certificate was made for another one"));
  ExpectUntouched(*server, NodeOf(kOne, "id-good"));
}

// How a store stream of node `claimed` ends that comes with the certificate of "id-a".
absl::Status StoreEnd(RendezvousServer& server, const std::string& claimed) {
  struct End {
    absl::Notification done;
    absl::Status status;
  };
  const auto end = std::make_shared<End>();
  const auto stream = std::make_shared<StoreUpstream>(
      MakeChannel(server.target(), NodeOf(kOne, "id-a", "none")), server.target(),
      StoreHello{.run_id = "none", .node_id = claimed, .stream = 1},
      StoreLink::Handlers{[](StoreBatch*) { return false; },
                          [](std::vector<StoreReply>) { return true; },
                          [end](const absl::Status& status) {
                            end->status = status;
                            end->done.Notify();
                          }});
  stream->Begin();
  end->done.WaitForNotificationWithTimeout(absl::FromChrono(kEventDeadline));
  return end->status;
}

TEST(SecurityTest, AnotherNodesIdIsRefusedByTheStoreToo) {
  auto server = ServeToken();
  EXPECT_EQ(StoreEnd(*server, "id-b").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(StoreEnd(*server, "id-a").code(), absl::StatusCode::kNotFound);
}

// A handshake that has led to a stream makes room for another. If each kept its room until its time
// is over, the last of these would wait for twice that time.
TEST(SecurityTest, MoreNodesAtOnceThanHandshakesFromOneAddress) {
  constexpr int kNodes = 2 * static_cast<int>(kHandshakesPerAddressMax) + 2;
  auto server = ServeToken();
  std::vector<std::unique_ptr<TestNode>> nodes;
  for (int i = 0; i < kNodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    nodes.push_back(std::make_unique<TestNode>(server->target(), MakeJoin(name, kNodes),
                                               kEventDeadline, NodeOf(kOne, "id-" + name)));
  }
  const auto deadline = std::chrono::steady_clock::now() + 2 * kHandshakeTimeout;
  for (const auto& node : nodes) {
    const auto rest = deadline - std::chrono::steady_clock::now();
    ASSERT_TRUE(node->Next<Start>(std::chrono::ceil<std::chrono::milliseconds>(rest)));
  }
}

TEST(SecurityTest, OnesOwnCertificates) {
  const TestAuthority authority("ours");
  auto server = Serve(authority.Issue({.alternative_name = "IP:127.0.0.1"}));
  ExpectUntouched(*server, authority.Issue({.alternative_name = "DNS:anything"}));
}

TEST(SecurityTest, OnesOwnServiceUnderAnotherName) {
  const TestAuthority authority("ours");
  auto server = Serve(authority.Issue({.alternative_name = "DNS:head.cluster"}));
  TestNode wrong(server->target(), MakeJoin("a", 1), kEventDeadline, authority.Issue({}));
  EXPECT_THAT(Complaint(wrong), HasSubstr("has a certificate that is not for that name"));
  TestNode right(server->target(), MakeJoin("b", 1), kEventDeadline, authority.Issue({}),
                 "head.cluster");
  EXPECT_TRUE(right.Next<Start>());
}

TEST(SecurityTest, AServiceOfAnotherAuthority) {
  const TestAuthority ours("ours");
  const TestAuthority theirs("theirs");
  auto server = Serve(theirs.Issue({.alternative_name = "IP:127.0.0.1"}));
  TestNode node(server->target(), MakeJoin("a", 1), kEventDeadline, ours.Issue({}));
  EXPECT_THAT(Complaint(node), HasSubstr("no authority in --tls-ca has signed"));
}

// Nodes whose certificates the service does not take: TLS 1.3 tells a client only by closing.
TEST(SecurityTest, WrongCertificatesOfNodes) {
  const TestAuthority ours("ours");
  const TestAuthority theirs("theirs");
  auto server = Serve(ours.Issue({.alternative_name = "IP:127.0.0.1"}));
  TlsCredentials foreign = theirs.Issue({});
  foreign.ca_pem = ours.Issue({}).ca_pem;
  const std::pair<const char*, TlsCredentials> cases[] = {
      {"expired", ours.Issue({.not_after = "20010101000000Z"})},
      {"self-signed", ours.Issue({.self_signed = true})},
      {"of another run", foreign},
  };
  for (const auto& [name, credentials] : cases) {
    TestNode node(server->target(), MakeJoin("a", 1), std::chrono::milliseconds(300), credentials);
    const auto ended = node.Next<SessionEnded>();
    ASSERT_TRUE(ended) << name;
    EXPECT_THAT(std::string(ended->status.message()),
                HasSubstr("does not accept this node's certificate"))
        << name;
  }
  ExpectUntouched(*server, ours.Issue({}));
}

// Another user's process on this machine: its connection is closed before it is read.
TEST(SecurityTest, AUnixSocketIsForItsUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  TempDir dir;
  const std::string path = dir / "service";
  auto server = RendezvousServer::Start({.address = "unix:" + path, .default_run_id = "run"});
  ASSERT_TRUE(server.ok()) << server.status();
  std::filesystem::permissions(std::filesystem::path(path).parent_path(),
                               std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  const pid_t pid = fork();
  if (pid == 0) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (setuid(12345) != 0) _exit(1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(2);
    char byte = 0;
    _exit(read(fd, &byte, 1) == 0 ? 0 : 3);  // closed without a word; HTTP/2 would have greeted
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  TestNode node((*server)->target(), MakeJoin("a", 1));
  EXPECT_TRUE(node.Next<Start>());
}

// A hundred at once from one address, more than may be in a handshake: all get in.
TEST(SecurityTest, ManyNodesAtOnce) {
  auto server = ServeToken();
  std::vector<std::unique_ptr<TestNode>> nodes;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "n" + std::to_string(i);
    nodes.push_back(std::make_unique<TestNode>(server->target(), MakeJoin(name, 100),
                                               kEventDeadline, NodeOf(kOne, "id-" + name)));
  }
  for (auto& node : nodes) EXPECT_TRUE(node->Next<Start>());
}

TEST(SecurityTest, AStreamThatSaysNothingIsEnded_RealTime) {
  auto server = Serve(std::nullopt);
  const auto stub = v1::Rendezvous::NewStub(MakeChannel(server->target()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kFirstMessageTimeout +
                       std::chrono::seconds(10));
  const auto stream = stub->Session(&context);
  v1::Directive directive;
  ASSERT_TRUE(stream->Read(&directive));
  EXPECT_THAT(directive.refused().message(), HasSubstr("first report did not come in time"));
  EXPECT_FALSE(stream->Read(&directive));
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace ddprun
