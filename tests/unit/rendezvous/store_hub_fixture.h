// SPDX-License-Identifier: Apache-2.0
// A hub whose words to each stream are kept.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/store/store_hub.h"
#include "tests/unit/rendezvous/kv_store_fixture.h"

namespace ddprun {

class TestHub {
 public:
  TestHub() {
    hub.set_on_mutation([this](const std::string& node, std::uint64_t id, const StoreOp& op) {
      journal.push_back({node, id, op});
    });
  }

  struct Entry {
    std::string node;
    std::uint64_t id;
    StoreOp op;
  };

  StorePeer Open(const std::string& node, std::uint64_t stream,
                 std::vector<std::uint64_t> unanswered = {}, const std::string& space = "") {
    const StorePeer peer{++last_peer};
    Keep(hub.Open(peer, {"run", node, stream, std::move(unanswered), space}));
    return peer;
  }
  void Send(StorePeer peer, std::uint64_t id, StoreOp op) {
    StoreBatch batch;
    batch.requests.push_back({id, std::move(op)});
    Keep(hub.Receive(peer, batch, now));
  }
  void Cancel(StorePeer peer, std::uint64_t id) {
    StoreBatch batch;
    batch.requests.push_back({id, std::nullopt});
    Keep(hub.Receive(peer, batch, now));
  }
  void Took(StorePeer peer, std::vector<std::uint64_t> ids) {
    StoreBatch batch;
    batch.answered = std::move(ids);
    Keep(hub.Receive(peer, batch, now));
  }
  void Gone(StorePeer peer) { hub.Gone(peer); }
  void TickAt(TimePoint time) {
    now = time;
    Keep(hub.Tick(now));
  }

  // What was said to the stream since the last call.
  std::vector<StoreReply> Received(StorePeer peer) { return std::exchange(received[peer], {}); }
  // The one answer that was.
  StoreReply Answer(StorePeer peer) {
    std::vector<StoreReply> replies = Received(peer);
    EXPECT_EQ(replies.size(), 1u);
    return replies.size() == 1 ? replies[0] : StoreReply{};
  }
  StoreReply Do(StorePeer peer, std::uint64_t id, StoreOp op) {
    Send(peer, id, std::move(op));
    return Answer(peer);
  }

  void Keep(StoreEffects effects) {
    for (StoreEffect& effect : effects) {
      if (auto* say = std::get_if<StoreSay>(&effect)) {
        received[say->peer].push_back(std::move(say->reply));
      } else {
        ended[std::get<StoreEnd>(effect).peer] = std::get<StoreEnd>(effect).status;
      }
    }
  }

  StoreHub hub{kRound};
  TimePoint now{std::chrono::hours(1)};
  std::vector<Entry> journal;
  std::map<StorePeer, std::vector<StoreReply>> received;
  std::map<StorePeer, absl::Status> ended;
  std::uint64_t last_peer = 0;
};

inline StoreOp AddOp(const std::string& key, std::int64_t number) {
  StoreOp op = MakeOp(StoreVerb::kAdd, {key});
  op.number = number;
  return op;
}

inline StoreOp WaitingOp(StoreVerb verb, std::vector<std::string> keys,
                         std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
  StoreOp op = MakeOp(verb, std::move(keys));
  op.timeout = timeout;
  return op;
}

}  // namespace ddprun
