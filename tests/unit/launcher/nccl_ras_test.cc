// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/nccl_ras.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "launcher/base/limits.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

using namespace std::string_literals;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NcclRas, ItsAddressIsThatOfTheProcess) {
  const RasAddress usual{"localhost", "28028"};
  EXPECT_EQ(RasAddressOf(""), usual);
  EXPECT_EQ(RasAddressOf("A=1\0NCCL_RAS_ENABLE=1\0"s), usual);
  EXPECT_EQ(RasAddressOf("XNCCL_RAS_ADDR=h:1"), usual);
  EXPECT_EQ(RasAddressOf("NCCL_RAS_ADDR=host:123\0B=\0"s), (RasAddress{"host", "123"}));
  EXPECT_EQ(RasAddressOf("NCCL_RAS_ADDR=[::1]:123"), (RasAddress{"::1", "123"}));
  EXPECT_EQ(RasAddressOf("NCCL_RAS_ADDR=nonsense"), std::nullopt);
  EXPECT_EQ(RasAddressOf("A\0NCCL_RAS_ENABLE=0\0"s), std::nullopt);
}

TEST(NcclRas, AProcessHasItWhereAThreadOfThatNameIs) {
  EXPECT_FALSE(RunsRas(getpid()));
  std::promise<void> named, end;
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), "NCCL RAS");
    named.set_value();
    end.get_future().wait();
  });
  named.get_future().wait();
  EXPECT_TRUE(RunsRas(getpid()));
  end.set_value();
  thread.join();
  EXPECT_FALSE(RunsRas(-1));
}

// Answers each line of its one client with the next text, and closes when there is none.
class FakeService {
 public:
  explicit FakeService(std::vector<std::string> answers)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), answers_(std::move(answers)) {
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof local;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&local), size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&local), &size);
    port_ = ntohs(local.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeService() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  RasAddress address() const { return {"127.0.0.1", std::to_string(port_)}; }
  const std::string& heard() const { return heard_; }

 private:
  void Serve() {
    const OwnedFd client(accept(listener_.get(), nullptr, nullptr));
    char c = 0;
    std::size_t next = 0;
    while (client.valid() && recv(client.get(), &c, 1, 0) == 1) {
      heard_ += c;
      if (c != '\n') continue;
      if (next == answers_.size()) continue;  // says nothing more
      const std::string& text = answers_[next++];
      if (text.empty()) return;
      send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (next == 3) return;
    }
  }

  OwnedFd listener_;
  std::vector<std::string> answers_;
  int port_ = 0;
  std::string heard_;
  std::thread thread_;
};

TEST(NcclRas, TheStateOfTheJobIsAskedFor) {
  FakeService service({"SERVER PROTOCOL 2\n", "OK\n", "Job\n\n  rank 2 \x1b[31mmissing\r\n"});
  const std::vector<std::string> lines = AskRas(service.address(), seconds(10));
  // The service had heard everything when it closed, which ended the answer.
  EXPECT_EQ(service.heard(), "CLIENT PROTOCOL 2\nTIMEOUT 5\nVERBOSE STATUS\n");
  EXPECT_THAT(lines, ElementsAre("    Job", "      rank 2 ?[31mmissing"));
}

TEST(NcclRas, WhoAnswersOtherwiseIsNotAsked) {
  FakeService service({"220 mail.example ESMTP\n"});
  EXPECT_THAT(AskRas(service.address(), seconds(10)), IsEmpty());
}

TEST(NcclRas, OneThatHangsUpSaysNothing) {
  FakeService service({"SERVER PROTOCOL 2\n", ""});
  EXPECT_THAT(AskRas(service.address(), seconds(10)), IsEmpty());
}

TEST(NcclRas, OneThatIsSilentIsLeftAtTheDeadline) {
  FakeService service({"SERVER PROTOCOL 2\n", "OK\n"});
  EXPECT_THAT(AskRas(service.address(), milliseconds(50)), IsEmpty());
}

TEST(NcclRas, AnAnswerWithoutEndIsCut) {
  FakeService service({"SERVER PROTOCOL 2\n", "OK\n", std::string(2 * kRasBytesMax, 'x')});
  const std::vector<std::string> lines = AskRas(service.address(), seconds(10));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].size(), kRasBytesMax + 4);
}

TEST(NcclRas, NobodyListens) {
  RasAddress address;
  { address = FakeService({}).address(); }
  EXPECT_THAT(AskRas(address, seconds(10)), IsEmpty());
  EXPECT_THAT(AskRas({"127.0.0.1", "no port"}, seconds(10)), IsEmpty());
}

}  // namespace
}  // namespace ddprun
