// SPDX-License-Identifier: Apache-2.0
// What clouds answer, as they document it, and what no cloud should.
#include "launcher/notices/metadata_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/notices/notice_watch.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Pair;

std::unique_ptr<MetadataService> Make(NoticeSource source,
                                      std::map<std::string, std::string> variables = {}) {
  return MakeMetadataService(source, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

absl::Time At(const char* text) {
  absl::Time time;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, nullptr));
  return time;
}

HttpAnswer Ok(std::string body) { return {.status = 200, .headers = {}, .body = std::move(body)}; }
HttpAnswer Status(int status) { return {.status = status, .headers = {}, .body = "x"}; }

const absl::Time kNow = At("2017-09-18T08:20:00Z");

// Feeds the answers of one look. Absent: it wants more.
std::optional<NoticeLook> Feed(MetadataService& service, std::vector<HttpAnswer> answers) {
  std::optional<NoticeLook> look;
  for (const HttpAnswer& answer : answers) {
    EXPECT_FALSE(look) << "more answers than questions";
    look = service.OnAnswer(answer, kNow);
  }
  return look;
}

// What no service should answer with.
const std::vector<std::string> kGarbage = {
    "",
    "<html>",
    "null",
    "[]",
    "7",
    "{",
    "{}",
    "{\"action\": 7, \"time\": []}",
    "{\"Events\": {}}",
    std::string("\0\x80\xff", 3),
    std::string(10'000, '['),
    "MAYBE",
};

TEST(MetadataServiceTest, OnlyCloudsHaveOne) {
  EXPECT_EQ(Make(NoticeSource::kFile), nullptr);
  EXPECT_EQ(Make(NoticeSource::kSlurm), nullptr);
  EXPECT_EQ(Make(NoticeSource::kKubernetes), nullptr);
  EXPECT_EQ(EndpointText(Make(NoticeSource::kAws)->server), "169.254.169.254:80");
}

TEST(MetadataServiceTest, ItsServerIsThatOfTheCloudsOwnVariable) {
  const auto server = [](NoticeSource source, const char* variable, const char* value) {
    return EndpointText(Make(source, {{variable, value}})->server);
  };
  EXPECT_EQ(
      server(NoticeSource::kAws, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/"),
      "[fd00:ec2::254]:80");
  EXPECT_EQ(server(NoticeSource::kGcp, "GCE_METADATA_HOST", "metadata.google.internal"),
            "metadata.google.internal:80");
  EXPECT_EQ(server(NoticeSource::kGcp, "GCE_METADATA_HOST", "127.0.0.1:81"), "127.0.0.1:81");
  EXPECT_EQ(
      server(NoticeSource::kAzure, "AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:82"),
      "127.0.0.1:82");
}

TEST(MetadataServiceTest, AwsIsAskedWithAToken) {
  const auto aws = Make(NoticeSource::kAws);
  HttpRequest request = aws->Next();
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.target, "/latest/api/token");
  EXPECT_EQ(request.headers.at(0).first, "X-aws-ec2-metadata-token-ttl-seconds");
  EXPECT_FALSE(aws->OnAnswer(Ok("AQAEANp=="), kNow));
  request = aws->Next();
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/latest/meta-data/spot/instance-action");
  EXPECT_THAT(request.headers.at(0), Pair("X-aws-ec2-metadata-token", "AQAEANp=="));
  const auto nothing = aws->OnAnswer(Status(404), kNow);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->id + nothing->error, "");
  const auto look =
      aws->OnAnswer(Ok("{\"action\": \"terminate\", \"time\": \"2017-09-18T08:22:00Z\"}"), kNow);
  ASSERT_TRUE(look);
  EXPECT_EQ(look->remaining, seconds(120));
  EXPECT_EQ(look->reason, "aws: spot instance-action terminate");
  EXPECT_EQ(look->id, "terminate 2017-09-18T08:22:00Z");
}

TEST(MetadataServiceTest, AnAwsTokenThatHasRunOutIsRenewedOnceALook) {
  const auto aws = Make(NoticeSource::kAws);
  ASSERT_TRUE(Feed(*aws, {Ok("t1"), Status(404)}));
  EXPECT_FALSE(aws->OnAnswer(Status(401), kNow));
  EXPECT_EQ(aws->Next().method, "PUT");
  EXPECT_TRUE(Feed(*aws, {Ok("t2"), Status(404)})->error.empty());
  EXPECT_EQ(aws->Next().headers.at(0).second, "t2");
  EXPECT_THAT(Feed(*aws, {Status(401), Ok("t3"), Status(401)})->error, HasSubstr("401"));
}

TEST(MetadataServiceTest, AnAwsTimeThatIsNoneLeavesItOpen) {
  const auto aws = Make(NoticeSource::kAws);
  const auto look = Feed(*aws, {Ok("t"), Ok("{\"action\": \"stop\", \"time\": \"soon\"}")});
  EXPECT_EQ(look->remaining, std::nullopt);
  EXPECT_EQ(look->reason, "aws: spot instance-action stop");
}

TEST(MetadataServiceTest, AwsMayAnswerAnything) {
  for (const std::string& body : kGarbage) {
    const auto aws = Make(NoticeSource::kAws);
    EXPECT_NE(Feed(*aws, {Ok("t"), Ok(body)})->error, "") << body;
  }
  for (const std::string& token :
       {std::string(), std::string("a b"), std::string("a\r\nX: y"), std::string(1 << 20, 'a')}) {
    const auto aws = Make(NoticeSource::kAws);
    EXPECT_NE(Feed(*aws, {Ok(token)})->error, "") << "it would be a header";
  }
  EXPECT_THAT(Feed(*Make(NoticeSource::kAws), {Status(500)})->error, HasSubstr("HTTP status 500"));
}

TEST(MetadataServiceTest, GcpAnswersWhenItChanges) {
  const auto gcp = Make(NoticeSource::kGcp);
  HttpRequest request = gcp->Next();
  EXPECT_EQ(request.target, "/computeMetadata/v1/instance/preempted");
  EXPECT_THAT(request.headers.at(0), Pair("Metadata-Flavor", "Google"));
  HttpAnswer answer = Ok("FALSE");
  answer.headers["etag"] = "411261ca6c9e4c7e";
  EXPECT_FALSE(gcp->OnAnswer(answer, kNow));
  EXPECT_EQ(gcp->Next().target, "/computeMetadata/v1/instance/maintenance-event");
  EXPECT_EQ(gcp->OnAnswer(Ok("NONE"), kNow)->id, "");
  request = gcp->Next();
  EXPECT_EQ(request.target,
            "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=5&"
            "last_etag=411261ca6c9e4c7e");
  EXPECT_GT(request.timeout, kMetadataInterval);
  const auto look = gcp->OnAnswer(Ok("TRUE"), kNow);
  EXPECT_EQ(look->remaining, seconds(30));
  EXPECT_EQ(look->reason, "gcp: preempted");
}

TEST(MetadataServiceTest, GcpMaintenanceCountsWhereItEndsTheMachine) {
  const auto gcp = Make(NoticeSource::kGcp);
  EXPECT_EQ(Feed(*gcp, {Ok("FALSE\n"), Ok("MIGRATE_ON_HOST_MAINTENANCE")})->id, "");
  const auto look = Feed(*gcp, {Ok("FALSE"), Ok("TERMINATE_ON_HOST_MAINTENANCE")});
  EXPECT_EQ(look->reason, "gcp: maintenance-event TERMINATE_ON_HOST_MAINTENANCE");
  EXPECT_EQ(look->remaining, seconds(60));
}

TEST(MetadataServiceTest, GcpMayAnswerAnything) {
  for (const std::string& body : kGarbage) {
    const auto gcp = Make(NoticeSource::kGcp);
    EXPECT_NE(Feed(*gcp, {Ok(body)})->error, "") << body;
    EXPECT_NE(Feed(*gcp, {Ok("FALSE"), Ok(body)})->error, "") << body;
    EXPECT_EQ(gcp->Next().target, "/computeMetadata/v1/instance/preempted") << "begins anew";
  }
  HttpAnswer tagged = Ok("FALSE");
  tagged.headers["etag"] = "x HTTP/1.1\r\nHost: y";
  const auto gcp = Make(NoticeSource::kGcp);
  Feed(*gcp, {tagged, Ok("NONE")});
  EXPECT_EQ(gcp->Next().target, "/computeMetadata/v1/instance/preempted");
}

std::string AzureEvents(const std::string& type, const std::string& resources,
                        const std::string& not_before, const std::string& id = "f020ba2e") {
  return absl::StrCat(R"({"DocumentIncarnation": 2, "Events": [{"EventId": ")", id,
                      R"(", "EventStatus": "Scheduled",
          "EventType": ")",
                      type, R"(", "ResourceType": "VirtualMachine", "Resources": [)", resources,
                      R"(], "NotBefore": ")", not_before,
                      R"(", "Description": "", "EventSource": "Platform",
          "DurationInSeconds": -1}]})");
}

TEST(MetadataServiceTest, AzureTellsMachinesApartByTheirNames) {
  const auto azure = Make(NoticeSource::kAzure);
  EXPECT_EQ(azure->Next().target,
            "/metadata/instance/compute/name?api-version=2021-02-01&format=text");
  EXPECT_THAT(azure->Next().headers.at(0), Pair("Metadata", "true"));
  EXPECT_FALSE(azure->OnAnswer(Ok("FrontEnd_IN_0"), kNow));
  EXPECT_EQ(azure->Next().target, "/metadata/scheduledevents?api-version=2020-07-01");
  EXPECT_EQ(azure->Next().timeout, kAzureFirstTimeout);
  EXPECT_EQ(azure->OnAnswer(Ok(R"({"DocumentIncarnation": 1, "Events": []})"), kNow)->id, "");
  EXPECT_EQ(azure->Next().timeout, kMetadataTimeout);
  const std::string time = "Mon, 18 Sep 2017 08:20:30 GMT";
  EXPECT_EQ(azure->OnAnswer(Ok(AzureEvents("Preempt", R"("BackEnd_IN_0")", time)), kNow)->id, "");
  const auto look =
      azure->OnAnswer(Ok(AzureEvents("Preempt", R"("BackEnd_IN_0", "FrontEnd_IN_0")", time)), kNow);
  EXPECT_EQ(look->reason, "azure: Preempt");
  EXPECT_EQ(look->remaining, seconds(30));
  EXPECT_EQ(look->id, "f020ba2e " + time);
}

TEST(MetadataServiceTest, AzureFreezesAMachineThatStays) {
  const auto azure = Make(NoticeSource::kAzure);
  ASSERT_FALSE(Feed(*azure, {Ok("a")}));
  for (const char* type : {"Terminate", "Reboot", "Redeploy"}) {
    const auto look = azure->OnAnswer(Ok(AzureEvents(type, R"("a")", "")), kNow);
    EXPECT_EQ(look->reason, absl::StrCat("azure: ", type));
    EXPECT_EQ(look->remaining, seconds(0)) << "it has begun";
  }
  EXPECT_EQ(azure->OnAnswer(Ok(AzureEvents("Freeze", R"("a")", "")), kNow)->id, "");
}

TEST(MetadataServiceTest, AzureMayAnswerAnything) {
  for (const std::string& body : kGarbage) {
    const auto azure = Make(NoticeSource::kAzure);
    EXPECT_NE(Feed(*azure, {Ok("a"), Ok(body)})->error, "") << body;
  }
  const auto azure = Make(NoticeSource::kAzure);
  EXPECT_NE(Feed(*azure, {Ok("")})->error, "");
  ASSERT_FALSE(Feed(*azure, {Ok("a")}));
  for (const char* event :
       {"7", "{}", R"({"EventType": "Preempt"})", R"({"EventType": "Preempt", "Resources": "a"})",
        R"({"EventType": "Preempt", "Resources": [7, null]})"})
    EXPECT_EQ(azure->OnAnswer(Ok(absl::StrCat("{\"Events\": [", event, "]}")), kNow)->id, "");
  const auto odd = azure->OnAnswer(Ok(AzureEvents("Preempt", R"("a")", "tomorrow\\n")), kNow);
  EXPECT_EQ(odd->remaining, seconds(0));
}

// ---- HTTP

std::string Parsed(const std::string& bytes, bool ended = false) {
  const auto answer = ParseHttpAnswer(bytes, ended);
  if (!answer.ok()) return std::string(answer.status().message());
  if (!answer->has_value()) return "more";
  return absl::StrCat((*answer)->status, " ", (*answer)->body);
}

TEST(HttpAnswerTest, ABodyHasALengthChunksOrTheConnectionsEnd) {
  EXPECT_EQ(Parsed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nTRUE\n"), "200 TRUE\n");
  EXPECT_EQ(Parsed("HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n"), "404 ");
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Parsed(chunked + "2\r\nTR\r\n2;x=y\r\nUE\r\n0\r\n\r\n"), "200 TRUE");
  EXPECT_EQ(Parsed("HTTP/1.0 200 OK\r\n\r\nTRUE", true), "200 TRUE");
  EXPECT_EQ(Parsed("HTTP/1.1 204 No Content\r\n\r\n"), "204 ");
  const auto answer =
      ParseHttpAnswer("HTTP/1.1 200 OK\r\nETag: a1 \r\nContent-Length: 0\r\n\r\n", false);
  EXPECT_EQ((**answer).headers.at("etag"), "a1");
}

TEST(HttpAnswerTest, WhatIsCutOffWantsMoreAndIsNoAnswer) {
  const std::string length = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE";
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nTRUE\r\n0\r\n";
  for (const std::string& whole : {length, chunked}) {
    ASSERT_EQ(Parsed(whole), "200 TRUE");
    const std::size_t last = whole.size() - (whole == chunked ? 2 : 1);
    for (std::size_t size = 0; size < last; ++size) {
      EXPECT_EQ(Parsed(whole.substr(0, size)), "more") << size;
      EXPECT_THAT(Parsed(whole.substr(0, size), true), HasSubstr("it ended the connection"));
    }
  }
}

TEST(HttpAnswerTest, WhatIsNoHttpIsRefused) {
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string("\0", 1), std::string("HTTP/2"),
        std::string("HTTP/1.1 abc\r\n\r\n"), std::string("HTTP/1.1 999 x\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nnothing\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n")}) {
    EXPECT_TRUE(absl::StartsWith(Parsed(bytes), "it ")) << bytes;
  }
}

// A server on the loopback that sends `answer` to whoever connects, and then waits for its end.
class Server {
 public:
  explicit Server(std::string answer) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const OwnedFd peer(accept(fd_.get(), nullptr, nullptr));
      send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      char byte = 0;
      while (recv(peer.get(), &byte, 1, 0) > 0) request_ += byte;
    });
  }
  ~Server() { thread_.join(); }

  absl::StatusOr<HttpAnswer> Ask(milliseconds timeout) const {
    return SendHttp({.host = "127.0.0.1", .port = port_, .others = {}},
                    {.method = "PUT", .target = "/x", .headers = {{"A", "b"}}, .timeout = timeout});
  }
  // Once the peer has ended.
  std::string TakeRequest() {
    thread_.join();
    thread_ = std::thread([] {});
    return request_;
  }

 private:
  OwnedFd fd_;
  int port_ = 0;
  std::string request_;
  std::thread thread_;
};

TEST(HttpRequestTest, IsSentAndAnswered) {
  Server server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  const auto answer = server.Ask(seconds(30));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "ok");
  const std::string request = server.TakeRequest();
  EXPECT_TRUE(absl::StartsWith(request, "PUT /x HTTP/1.1\r\nHost: 127.0.0.1:")) << request;
  EXPECT_THAT(request, HasSubstr("\r\nContent-Length: 0\r\nA: b\r\n\r\n"));
}

TEST(HttpRequestTest, AServerThatHangsOrSendsTooMuchIsLeft) {
  EXPECT_THAT(std::string(Server("").Ask(milliseconds(50)).status().message()),
              HasSubstr("no answer in time"));
  EXPECT_THAT(std::string(Server("HTTP/1.1 200 OK\r\n").Ask(milliseconds(50)).status().message()),
              HasSubstr("no answer in time"));
  EXPECT_THAT(std::string(Server("HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 17, 'x'))
                              .Ask(seconds(30))
                              .status()
                              .message()),
              HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(std::string(Server("220 smtp\r\n").Ask(seconds(30)).status().message()),
              HasSubstr("it does not speak HTTP/1.1"));
}

}  // namespace
}  // namespace ddprun
