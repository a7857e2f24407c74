// SPDX-License-Identifier: Apache-2.0
// The protocol of torch's TCPStore, byte by byte, in front of the real store.
#include "rendezvous/tcpstore/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "rendezvous/base/limits.h"
#include "rendezvous/store/kv_store.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun {
namespace {

using std::string_literals::operator""s;
using tcpstore::kHello;
using tcpstore::Request;
using tcpstore::Terms;
using tcpstore::Text;
using tcpstore::U64;
using ::testing::HasSubstr;

constexpr RoundId kRound{7};
// A value of this size is a piece of its own.
constexpr std::size_t kPieceBytes = 4096;
std::string Keys(const std::vector<std::string>& keys) {
  std::string bytes = U64(keys.size());
  for (const std::string& key : keys) bytes += Text(key);
  return bytes;
}

std::string Output(TcpStoreSession& session) {
  std::string bytes;
  for (const StoreValue& piece : session.TakeOutput()) bytes += piece.text();
  return bytes;
}

// Several clients of one store.
class TcpStoreSessionTest : public ::testing::Test {
 protected:
  struct Client {
    TcpStoreSession session{kRound};
    std::string out;
    std::vector<TcpStoreSession::Request> requests;  // all that it has made
  };

  TcpStoreSessionTest() { Send(one, kHello), Send(two, kHello); }

  void Send(Client& client, const std::string& bytes) {
    client.session.Receive(bytes);
    Serve(client);
  }
  // What the client has got since it was last asked.
  static std::string Got(Client& client) { return std::exchange(client.out, {}); }
  std::string Ask(const std::string& bytes) {
    Send(one, bytes);
    return Got(one);
  }

  void Serve(Client& client) {
    for (auto requests = client.session.TakeRequests(); !requests.empty();
         requests = client.session.TakeRequests()) {
      for (TcpStoreSession::Request& request : requests) {
        client.requests.push_back(request);
        StoreTicket& ticket = tickets_[{&client, request.id}];
        if (request.op) {
          ticket = StoreTicket{++last_ticket_};
          origins_[ticket] = {&client, request.id};
          Deliver(store.Submit(ticket, *std::move(request.op), TimePoint{}));
        } else {
          store.Cancel(ticket);
        }
      }
    }
    client.out += Output(client.session);
  }
  void Deliver(std::vector<KvStore::Answer> answers) {
    for (KvStore::Answer& answer : answers) {
      const auto [client, id] = origins_.at(answer.ticket);
      client->session.Answer(id, answer.result);
      Serve(*client);
    }
  }

  KvStore store{kRound};
  Client one;
  Client two;

 private:
  std::uint64_t last_ticket_ = 0;
  std::map<std::pair<Client*, std::uint64_t>, StoreTicket> tickets_;
  std::map<StoreTicket, std::pair<Client*, std::uint64_t>> origins_;
};

std::string Barrier(const std::string& key, std::uint64_t count) {
  return Request(18, Text(key), U64(count));
}

// As torch 2.15's server has it: the key counts on, and whoever comes later passes at once.
TEST_F(TcpStoreSessionTest, ABarrierEndsForAllWithTheLast) {
  EXPECT_EQ(Ask(Barrier("/b", 2)), "");
  Send(two, Barrier("/b", 2));
  EXPECT_EQ(Got(two), "\0"s);
  EXPECT_EQ(Got(one), "\0"s);
  EXPECT_EQ(Ask(Barrier("/b", 2)), "\0"s);
  EXPECT_EQ(Ask(Request(3, Text("/b"))), Text("3"));
}

TEST_F(TcpStoreSessionTest, ABarrierThatIsCancelledHasCounted) {
  EXPECT_EQ(Ask(Barrier("/b", 2)), "");
  EXPECT_EQ(Ask(Request(12)), "\1");
  EXPECT_EQ(Ask(Request(13, "abcd")), "abcd");
  Send(two, Barrier("/b", 2));
  EXPECT_EQ(Got(two), "\0"s);
  EXPECT_EQ(Got(one), "") << "it was told already";
  one.session.Receive(Barrier("/c", 2) + Request(12));  // before the store has answered
  Serve(one);
  EXPECT_EQ(Got(one), "\1");
  EXPECT_EQ(Ask(Request(3, Text("/c"))), Text("1"));
}

TEST_F(TcpStoreSessionTest, ABarrierOfWhatIsNoNumberEndsTheConnection) {
  Ask(Request(1, Text("/b"), Text("text")));
  EXPECT_EQ(Ask(Barrier("/b", 2)), "");
  EXPECT_EQ(one.session.status().code(), absl::StatusCode::kInvalidArgument);
}

// Within protocol 5 a service may lack the verb: it refuses that operation, and the stream goes on.
TEST_F(TcpStoreSessionTest, ABarrierThatTheServiceDoesNotKnowEndsTheConnectionWithItsSentence) {
  TcpStoreSession session(kRound);
  session.Receive(kHello + Barrier("/b", 2));
  const auto add = session.TakeRequests();
  ASSERT_EQ(add.at(0).op->verb, StoreVerb::kAdd);
  StoreResult first;
  first.number = 1;
  session.Answer(add.at(0).id, first);
  const auto wait = session.TakeRequests();
  ASSERT_EQ(wait.at(0).op->verb, StoreVerb::kWaitCount);
  session.Answer(wait.at(0).id, ErrorResult(absl::InvalidArgumentError("store verb 16 is new")));
  EXPECT_EQ(session.status().message(), "store verb 16 is new");
  EXPECT_FALSE(session.wants_input());
}

TEST_F(TcpStoreSessionTest, EachVerbHasItsReply) {
  EXPECT_EQ(Ask(Request(13, "abcd")), "abcd");                               // PING
  EXPECT_EQ(Ask(Request(1, Text("/k"), Text("v"))), "");                     // SET
  EXPECT_EQ(Ask(Request(3, Text("/k"))), Text("v"));                         // GET
  EXPECT_EQ(Ask(Request(3, Text("/none"))), Text(""));                       // a client waits first
  EXPECT_EQ(Ask(Request(4, Text("/n"), U64(5))), U64(5));                    // ADD
  EXPECT_EQ(Ask(Request(4, Text("/n"), U64(-7))), U64(-2));                  //
  EXPECT_EQ(Ask(Request(3, Text("/n"))), Text("-2"));                        //
  EXPECT_EQ(Ask(Request(5, Keys({"/k", "/n"}))), "\0"s);                     // CHECK
  EXPECT_EQ(Ask(Request(5, Keys({"/k", "/none"}))), "\1");                   //
  EXPECT_EQ(Ask(Request(6, Keys({"/k"}))), "\0"s);                           // WAIT
  EXPECT_EQ(Ask(Request(7)), U64(2));                                        // GETNUMKEYS
  EXPECT_EQ(Ask(Request(9, Text("/k"), Text("w"))), "");                     // APPEND
  EXPECT_EQ(Ask(Request(10, Keys({"/k", "/n"}))), Text("vw") + Text("-2"));  // MULTI_GET
  EXPECT_EQ(Ask(Request(11, U64(2), Text("a"), Text("1"), Text("b"), Text("2"))), "");
  EXPECT_EQ(Ask(Request(10, Keys({"a", "b"}))), Text("1") + Text("2"));
  EXPECT_EQ(Ask(Request(10, Keys({"a", "none", "b"}))), Text("1") + Text("") + Text("2"));
  EXPECT_EQ(Ask(Request(17)), U64(4) + Text("/k") + Text("/n") + Text("a") + Text("b"));
  EXPECT_EQ(Ask(Request(8, Text("a"))), U64(1));  // DELETE_KEY
  EXPECT_EQ(Ask(Request(8, Text("a"))), U64(0));
  EXPECT_EQ(Ask(Request(14, Text("q"), Text("x"))), "");  // QUEUE_PUSH
  EXPECT_EQ(Ask(Request(14, Text("q"), Text("y"))), "");
  EXPECT_EQ(Ask(Request(16, Text("q"))), U64(2));              // QUEUE_LEN
  EXPECT_EQ(Ask(Request(15, Text("q"))), U64(1) + Text("x"));  // QUEUE_POP
  EXPECT_EQ(Ask(Request(15, Text("q"))), U64(1) + Text("y"));
  EXPECT_EQ(Ask(Request(15, Text("q"))), U64(0));
  EXPECT_TRUE(one.session.status().ok());
}

TEST_F(TcpStoreSessionTest, CompareSetRepliesWithWhatIsStoredOrWasExpected) {
  const auto compare_set = [&](const std::string& expected, const std::string& desired) {
    return Ask(Request(2, Text("k"), Text(expected), Text(desired)));
  };
  EXPECT_EQ(compare_set("some", "new"), Text("some"));
  EXPECT_EQ(compare_set("", "first"), Text("first"));
  EXPECT_EQ(compare_set("wrong", "second"), Text("first"));
  EXPECT_EQ(compare_set("first", "second"), Text("second"));
}

TEST_F(TcpStoreSessionTest, RequestsMayComeInAnyPieces) {
  std::string all = Request(1, Text("/k"), Text("value"));
  all += Request(9, Text("/k"), Text("+")) + Request(11, U64(1), Text("m"), Text("1"));
  all += Request(10, Keys({"/k", "m"})) + Request(13, "1234");
  const std::string expected = Text("value+") + Text("1") + "1234";
  EXPECT_EQ(Ask(all), expected);
  for (std::size_t piece = 1; piece < all.size(); ++piece) {
    for (std::size_t at = 0; at < all.size(); at += piece) Send(two, all.substr(at, piece));
    EXPECT_EQ(Got(two), expected) << piece;
  }
}

TEST_F(TcpStoreSessionTest, AWaitEndsWithItsKeysOrIsCancelled) {
  Send(one, Request(6, Keys({"a", "b"})));
  Send(two, Request(1, Text("a"), Text("")));
  EXPECT_EQ(Got(one), "");
  Send(two, Request(1, Text("b"), Text("")));
  EXPECT_EQ(Got(one), "\0"s);
  EXPECT_EQ(Ask(Request(12)), "\1") << "its timeout ran out as the answer was under way";

  Send(one, Request(6, Keys({"never"})));
  EXPECT_EQ(Ask(Request(12)), "\1");
  EXPECT_EQ(store.waiter_count(), 0u);
  Send(two, Request(1, Text("never"), Text("v")));
  EXPECT_EQ(Got(one), "") << "nothing of the old wait may follow";
  EXPECT_EQ(Ask(Request(3, Text("never"))), Text("v"));
}

TEST_F(TcpStoreSessionTest, AValueOfAQueueEndsOneWait) {
  Send(one, Request(6, Keys({"q"})));
  Send(two, Request(6, Keys({"q"})));
  Client third;
  Send(third, kHello + Request(14, Text("q"), Text("x")));
  EXPECT_EQ(Got(one) + Got(two), "\0"s);
  EXPECT_EQ(Ask(Request(15, Text("q"))), U64(1) + Text("x"));
  Send(third, Request(14, Text("q"), Text("y")));
  EXPECT_EQ(Got(two), "\0"s);
}

TEST_F(TcpStoreSessionTest, WhoIsToldOfAValueThatAnotherPopsGetsTheNext) {
  Send(one, Request(6, Keys({"q"})));
  Send(two, Request(14, Text("q"), Text("x")));
  EXPECT_EQ(Got(one), "\0"s);
  Send(two, Request(6, Keys({"q"})) + Request(15, Text("q")));
  EXPECT_EQ(Got(two), "\0"s + U64(1) + Text("x"));
  EXPECT_EQ(Ask(Request(15, Text("q"))), "") << "torch's client would raise QueueEmptyError";
  Send(two, Request(14, Text("q"), Text("y")));
  EXPECT_EQ(Got(one), U64(1) + Text("y"));
  EXPECT_EQ(Ask(Request(15, Text("q"))), U64(0)) << "a QUEUE_POP alone does not wait";
}

TEST_F(TcpStoreSessionTest, WhoIsToldOfAValueThatAnotherPopsHearsSoonThatThereIsNoMore) {
  Send(one, Request(6, Keys({"q"})));
  Send(two, Request(14, Text("q"), Text("x")) + Request(15, Text("q")));
  EXPECT_EQ(Got(one), "\0"s);
  EXPECT_EQ(Ask(Request(15, Text("q"))), "");
  Deliver(store.Tick(TimePoint{} + std::chrono::seconds(10)));
  EXPECT_EQ(Got(one), U64(0));
}

TEST_F(TcpStoreSessionTest, OnlyAWaitThatMayBeForAQueueIsNotJoined) {
  Send(one, Request(6, Keys({"a", "b"})));
  Send(two, Request(6, Keys({"a"})));
  EXPECT_FALSE(one.requests.back().alone);
  EXPECT_TRUE(two.requests.back().alone);
}

TEST_F(TcpStoreSessionTest, WhatFollowsASilentRequestComesAfterIt) {
  TcpStoreSession session(kRound);
  session.Receive(kHello + Request(1, Text("k"), Text("v")) + Request(3, Text("k")));
  const auto requests = session.TakeRequests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_TRUE(requests[1].alone);
  session.Answer(requests[0].id, {});
  session.Receive(Request(3, Text("k")));
  EXPECT_TRUE(session.TakeRequests().empty()) << "the first GET is not answered yet";
  session.Answer(requests[1].id, {.values = {"v"}});
  const auto next = session.TakeRequests();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_FALSE(next[0].alone);
}

TEST_F(TcpStoreSessionTest, AWaitIsJoinedThoughItsReplyComesAfterSilentRequests) {
  TcpStoreSession session(kRound);
  session.Receive(kHello + Request(1, Text("k"), Text("v")) + Request(6, Keys({"a", "b"})));
  const auto requests = session.TakeRequests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_FALSE(requests[1].alone);
  session.Answer(requests[1].id, {});
  EXPECT_EQ(Output(session), "") << "the client would take its SET for done";
  session.Receive(Request(3, Text("k")));
  EXPECT_TRUE(session.TakeRequests().empty());
  session.Answer(requests[0].id, {});
  EXPECT_EQ(Output(session), "\0"s);
  EXPECT_EQ(session.TakeRequests().size(), 1u) << "and goes on";
}

TEST_F(TcpStoreSessionTest, AClientThatDoesNotWaitIsHeld) {
  TcpStoreSession session(kRound);
  std::string sets = kHello;
  for (std::size_t i = 0; i < 4 * kTcpStoreOpsMax; ++i) sets += Request(1, Text("k"), Text("v"));
  sets.append(64 * 1024, '\1');
  session.Receive(sets);
  std::vector<TcpStoreSession::Request> requests = session.TakeRequests();
  EXPECT_EQ(requests.size(), kTcpStoreOpsMax);
  EXPECT_FALSE(session.wants_input());
  for (const auto& request : requests) session.Answer(request.id, {});
  EXPECT_EQ(session.TakeRequests().size(), kTcpStoreOpsMax);
  EXPECT_TRUE(session.status().ok());
}

TEST_F(TcpStoreSessionTest, AnErrorOfTheStoreEndsTheConnection) {
  Send(one, Request(1, Text("k"), Text("text")));
  EXPECT_EQ(Ask(Request(4, Text("k"), U64(1))), "");
  EXPECT_THAT(std::string(one.session.status().message()), HasSubstr("not a number"));

  TcpStoreSession late(RoundId{6});
  late.Receive(kHello + Request(1, Text("k"), Text("v")));
  const auto requests = late.TakeRequests();
  late.Answer(requests.at(0).id, ErrorResult(absl::AbortedError("over")));
  EXPECT_TRUE(absl::IsAborted(late.status()));
}

TEST_F(TcpStoreSessionTest, WhatIsNoRequestEndsTheConnection) {
  const struct {
    std::string bytes;
    const char* says;
  } kCases[] = {
      {"GET / HTTP/1.1", "does not speak the protocol"},
      {"\x00wrong"s, "wrong magic"},
      {kHello + Request(3, U64(kKeyBytesMax + 1)), "a key of 8193 bytes"},
      {kHello + Request(1, Text("k"), U64(~0ull)), "a value of 18446744073709551615 bytes"},
      {kHello + Request(5, U64(kTcpStoreKeysMax + 1)), "131073 keys"},
      {kHello + Request(11, U64(~0ull)), "keys; at most"},
      {kHello + Request(19, Text("k")), "opcode 19"},
      {kHello + Request(255), "opcode 255"},
  };
  for (const auto& one_case : kCases) {
    TcpStoreSession session(kRound);
    session.Receive(one_case.bytes);
    EXPECT_THAT(std::string(session.status().message()), HasSubstr(one_case.says));
    EXPECT_TRUE(session.TakeRequests().empty());
    EXPECT_FALSE(session.wants_input());
  }
}

std::string Status(absl::StatusCode code, const std::string& message) {
  return std::string(1, static_cast<char>(code)) + Text(message);
}

TEST_F(TcpStoreSessionTest, ARequestWithTermsHasAReplyThatBeginsWithAStatus) {
  const std::string ok(1, '\0');
  const std::string terms = Terms(7);
  EXPECT_EQ(Ask(terms + Request(1, Text("k"), Text("v"))), ok);
  EXPECT_EQ(Ask(terms + Request(3, Text("k"))), ok + Text("v"));
  EXPECT_EQ(Ask(terms + Request(2, Text("k"), Text("v"), Text("w"))), ok + Text("w"));
  EXPECT_EQ(Ask(terms + Request(4, Text("n"), U64(5))), ok + U64(5));
  EXPECT_EQ(Ask(terms + Request(5, Keys({"k", "n"}))), ok + "\0"s);
  EXPECT_EQ(Ask(terms + Request(6, Keys({"k"}))), ok + "\0"s);
  EXPECT_EQ(Ask(terms + Request(9, Text("k"), Text("x"))), ok);
  EXPECT_EQ(Ask(terms + Request(10, Keys({"k", "n"}))), ok + Text("wx") + Text("5"));
  EXPECT_EQ(Ask(terms + Request(11, U64(1), Text("m"), Text("1"))), ok);
  EXPECT_EQ(Ask(terms + Request(7)), ok + U64(3));
  EXPECT_EQ(Ask(terms + Request(17)), ok + U64(3) + Text("k") + Text("m") + Text("n"));
  EXPECT_EQ(Ask(terms + Request(8, Text("m"))), ok + U64(1));
  EXPECT_EQ(Ask(terms + Request(14, Text("q"), Text("x"))), ok);
  EXPECT_EQ(Ask(terms + Request(16, Text("q"))), ok + U64(1));
  EXPECT_EQ(Ask(terms + Request(15, Text("q"))), ok + U64(1) + Text("x"));
  EXPECT_EQ(Ask(Request(3, Text("none"))), Text("")) << "terms are of one request";
}

TEST_F(TcpStoreSessionTest, AnErrorOfARequestWithTermsHasItsReasonAndEndsNothing) {
  Send(one, Request(1, Text("k"), Text("text")));
  EXPECT_EQ(Ask(Terms(7) + Request(4, Text("k"), U64(1))),
            Status(absl::StatusCode::kInvalidArgument,
                   "cannot add to key 'k': its value 'text' is not a number of 64 bits"));
  EXPECT_EQ(Ask(Terms(6) + Request(3, Text("k"))),
            Status(absl::StatusCode::kAborted,
                   "the store operation belongs to round 6, but the run is in round 7"));
  EXPECT_THAT(Ask(Terms(7) + Request(3, Text("none"))), HasSubstr("waited 0 ms for key 'none'"));
  EXPECT_THAT(Ask(Terms(7) + Request(10, Keys({"k", "none"}))), HasSubstr("'none'"));
  EXPECT_EQ(Ask(Terms(7) + Request(15, Text("q")))[0],
            static_cast<char>(absl::StatusCode::kNotFound));
  EXPECT_TRUE(one.session.status().ok());
}

TEST_F(TcpStoreSessionTest, ARequestWithTermsWaitsAsLongAsTheySay) {
  Send(one, Terms(7, 1500) + Request(3, Text("late")));
  ASSERT_TRUE(one.requests.back().op.has_value());
  EXPECT_EQ(one.requests.back().op->timeout, std::chrono::milliseconds(1500));
  EXPECT_FALSE(one.requests.back().alone);
  EXPECT_EQ(Got(one), "");
  Send(two, Request(1, Text("late"), Text("v")));
  EXPECT_EQ(Got(one), "\0"s + Text("v"));
  Send(one, Terms(7, -5) + Request(6, Keys({"never"})));
  EXPECT_EQ(one.requests.back().op->timeout, std::chrono::milliseconds(0));
  Send(one, Terms(7, std::numeric_limits<std::int64_t>::max()) + Request(6, Keys({"never"})));
  EXPECT_EQ(one.requests.back().op->timeout, std::chrono::milliseconds(kStoreTimeoutMax));
}

TEST_F(TcpStoreSessionTest, ARequestThatCannotBeReadIsToldIfItHasTerms) {
  EXPECT_EQ(Ask(Terms(7) + Request(3, U64(kKeyBytesMax + 1))),
            Status(absl::StatusCode::kResourceExhausted,
                   "a request of its TCPStore has a key of 8193 bytes; at most 8192 are allowed"));
  EXPECT_FALSE(one.session.status().ok());
  EXPECT_THAT((Send(two, Terms(7, 0, /*version=*/3)), Got(two)), HasSubstr("speaks protocol 3"));
  EXPECT_FALSE(two.session.status().ok());
}

// Whatever comes in small pieces is read once: a reader that begins anew with each piece takes
// hours for these.
TEST_F(TcpStoreSessionTest, PiecesOfALargeRequestAreReadOnce) {
  std::string request = Request(11, U64(100'000));
  for (int i = 0; i < 100'000; ++i) request += Text(std::to_string(i)) + Text(std::string(50, 'v'));
  constexpr std::size_t kPiece = 64;
  TcpStoreSession session(kRound);
  session.Receive(kHello);
  EXPECT_EQ(session.room_needed(), 0u);
  for (std::size_t at = 0; at < request.size(); at += kPiece) {
    // The key or value that is being read counts with its length, and how much a request with many
    // of them will have is not known.
    const bool may_be_either = at > kSmallRequestBytes / 2 && at <= kSmallRequestBytes;
    const std::size_t room = at > kSmallRequestBytes ? kMessageBytesMax : 0;
    ASSERT_TRUE(may_be_either || session.room_needed() == room) << at;
    session.Receive(std::string_view(request).substr(at, kPiece));
  }
  EXPECT_EQ(session.room_needed(), 0u);
  const auto requests = session.TakeRequests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].op->keys.size(), 100'000u);
  EXPECT_EQ(requests[0].op->keys.back(), "99999");
}

TEST_F(TcpStoreSessionTest, ARequestWhoseLengthIsKnownSaysItAtOnce) {
  TcpStoreSession session(kRound);
  const std::string begin = Request(1, Text("k"), U64(kValueBytesMax));
  session.Receive(kHello + begin + "value");
  EXPECT_EQ(session.room_needed(), begin.size() + kValueBytesMax);
  EXPECT_EQ(session.bytes_missing(), kValueBytesMax - 5);
}

// Of many keys: as much as if the rest were as long as those that have come.
TEST_F(TcpStoreSessionTest, ARequestOfManyKeysSaysAboutHowMuchIsMissing) {
  TcpStoreSession session(kRound);
  std::string request = Request(10, U64(64));
  const std::size_t first_key = request.size();
  for (int i = 10; i < 74; ++i) request += Text("exchange/key-" + std::to_string(i));
  const std::size_t key = Text("exchange/key-10").size();
  session.Receive(kHello);
  for (std::size_t at = 0; at < request.size(); ++at) {
    // The length of the key that has begun may not have come yet.
    if (at >= first_key + key) {
      ASSERT_LE(session.bytes_missing(), request.size() - at) << at;
      ASSERT_GE(session.bytes_missing() + key, request.size() - at) << at;
    }
    session.Receive(request.substr(at, 1));
  }
  EXPECT_EQ(session.bytes_missing(), 0u);
  ASSERT_EQ(session.TakeRequests().size(), 1u);
}

// What a client asks for ahead is not made before it has read what it asked for before.
TEST_F(TcpStoreSessionTest, NothingIsBegunWhileTheClientReads) {
  const std::string value(kPieceBytes, 'v');
  Ask(Request(1, Text("k"), Text(value)));
  one.session.SetUnread(true);
  EXPECT_EQ(Ask(Request(3, Text("k")) + Request(3, Text("k"))), "");
  EXPECT_TRUE(one.session.wants_input()) << "a little is read ahead";
  one.session.Receive(std::string(kSmallRequestBytes, '\0'));
  EXPECT_FALSE(one.session.wants_input());
  EXPECT_EQ(one.session.room_needed(), 0u);
  one.requests.clear();
  one.session.SetUnread(false);
  EXPECT_EQ(one.session.TakeRequests().size(), 1u);
}

TEST_F(TcpStoreSessionTest, ALargeValueIsSentFromWhereItIs) {
  Ask(Request(1, Text("k"), Text(std::string(kPieceBytes, 'v'))));
  StoreValue value = store.values().at("k");
  two.session.Receive(Request(3, Text("k")));
  two.session.Answer(two.session.TakeRequests().at(0).id, {.values = {value}});
  const std::vector<StoreValue> pieces = two.session.TakeOutput();
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0], U64(kPieceBytes));
  EXPECT_EQ(pieces[1].bytes(), value.bytes());
}

// One by one, as its keys do not all exist, it has the limit that it has as a whole.
TEST_F(TcpStoreSessionTest, AMultiGetOfTooMuchIsRejected) {
  Ask(Request(1, Text("k"), Text(std::string(kValueBytesMax, 'v'))));
  EXPECT_EQ(Ask(Request(10, Keys({"absent", "k", "k", "k"}))), "");
  EXPECT_EQ(one.session.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(one.session.status().message(),
            "the values of the 4 keys that it asks for at once are more than 16777216 bytes; ask "
            "for fewer at a time");
}

TEST_F(TcpStoreSessionTest, ARequestHasALimitAsAWhole) {
  TcpStoreSession session(kRound);
  session.Receive(kHello + Request(11, U64(100)));
  const std::string value(kValueBytesMax, 'v');
  for (int i = 0; i < 3 && session.status().ok(); ++i) session.Receive(Text("k") + Text(value));
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("more than 16777216 bytes"));
}

}  // namespace
}  // namespace ddprun
