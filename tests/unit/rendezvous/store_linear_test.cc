// SPDX-License-Identifier: Apache-2.0
// The hub and the folders of three nodes with workers, on simulated time: messages are late,
// streams break (each side learns of it in its own time), nodes come back. Whatever happens, the
// workers' answers are those of one plain store.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>

#include "rendezvous/store/store_coalescer.h"
#include "rendezvous/store/store_hub.h"
#include "tests/unit/rendezvous/linear_checker.h"
#include "tests/unit/rendezvous/store_hub_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using std::chrono::milliseconds;

constexpr int kNodes = 3;
constexpr int kWorkersOfNode = 2;
constexpr int kClients = kNodes * kWorkersOfNode;

class Cluster {
 public:
  explicit Cluster(unsigned seed) : random_(seed) {
    for (Node& node : nodes_) node.folder.SetRound(kRound);
  }

  // False: the answers are not those of one store.
  bool Step() {
    const int node = Below(kNodes);
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
        return Ask(Below(kClients));
      case 3:
      case 4:
        Flush(node);
        return true;
      case 5:
      case 6:
        Up(Below(static_cast<int>(streams_.size())));
        return true;
      case 7:
      case 8:
        return Down(Below(static_cast<int>(streams_.size())));
      case 9:
        return Pass(milliseconds(Below(40) == 0 ? 1500 : Below(100)));
      case 10:
        if (Below(10) == 0) Cut(node);
        return true;
      default:
        return Notice(Below(static_cast<int>(streams_.size())));
    }
  }

  // Until every operation has its answer.
  bool Finish() {
    for (int round = 0; round < 500; ++round) {
      for (int i = 0; i < static_cast<int>(streams_.size()); ++i) {
        if (streams_[static_cast<std::size_t>(i)].cut && !Notice(i, /*surely=*/true)) return false;
      }
      for (int node = 0; node < kNodes; ++node) Flush(node);
      for (int i = 0; i < static_cast<int>(streams_.size()); ++i) {
        Up(i);
        if (!Down(i)) return false;
      }
      if (!Pass(milliseconds(50))) return false;
    }
    return true;
  }

  std::size_t asked() const { return asked_; }
  std::size_t answered() const { return answered_; }
  std::size_t breaks() const { return breaks_; }

 private:
  struct Node {
    StoreCoalescer folder;
    std::uint64_t streams = 0;
    int stream = -1;
  };
  struct Stream {
    int node = 0;
    StorePeer peer = kNoPeer;
    StoreHello hello;
    bool opened = false;  // the hub has had the greeting
    bool cut = false;
    bool node_knows = false;
    bool hub_knows = false;
    std::deque<StoreBatch> up;
    std::deque<StoreReply> down;
  };

  int Below(int limit) {
    return limit <= 0 ? 0 : std::uniform_int_distribution<int>(0, limit - 1)(random_);
  }

  StoreOp RandomOp() {
    const auto number = [this] { return std::to_string(Below(4)); };
    const std::string key = Below(2) == 0 ? "a" : "b";
    switch (Below(23)) {
      case 0:
        return MakeOp(V::kSet, {key}, {number()});
      case 1:
        return MakeOp(V::kMultiSet, {"a", "b"}, {number(), number()});
      case 2:
      case 3:
        return AddOp(key, 1 + Below(2));
      case 4:
        return MakeOp(V::kCompareSet, {key}, {Below(2) == 0 ? "" : number(), number()});
      case 5:
        return Below(2) == 0 ? MakeOp(V::kDelete, {key}) : MakeOp(V::kAppend, {"b"}, {"1"});
      case 6:
        return MakeOp(V::kQueuePush, {"q"}, {std::to_string(++pushed_)});
      case 7:
        return WaitingOp(V::kQueuePop, {"q"}, milliseconds(Below(2) == 0 ? 0 : 200));
      case 8:
        return MakeOp(V::kCheck, {key});
      case 9:
        return Below(2) == 0 ? MakeOp(V::kNumKeys, {}) : MakeOp(V::kListKeys, {});
      case 10:
        return WaitingOp(V::kWait, {key}, milliseconds(300));
      case 11: {
        StoreOp op = WaitingOp(V::kWaitCount, {key}, milliseconds(300));
        op.number = 1 + Below(9);
        return op;
      }
      case 12:
      case 13:
        return MakeOp(V::kMultiGet, {"a", "b"});
      default:
        return WaitingOp(V::kGet, {key}, milliseconds(Below(2) == 0 ? 0 : 300));
    }
  }

  bool Ask(int client) {
    if (busy_[static_cast<std::size_t>(client)]) return true;
    busy_[static_cast<std::size_t>(client)] = true;
    ++asked_;
    const StoreOp op = RandomOp();
    checker_.Asked(client, op);
    Node& node = nodes_[static_cast<std::size_t>(client / kWorkersOfNode)];
    return Take(
        node.folder.Submit(StoreWorker{static_cast<std::uint64_t>(client + 1)}, ++ids_, op, now_));
  }

  bool Take(StoreCoalescer::Answers answers) {
    for (const auto& answer : answers) {
      for (const auto& to : answer.to) {
        const int client = static_cast<int>(to.first) - 1;
        EXPECT_TRUE(busy_[static_cast<std::size_t>(client)]);
        busy_[static_cast<std::size_t>(client)] = false;
        ++answered_;
        if (!checker_.Answered(client, answer.result)) return false;
      }
    }
    return true;
  }

  void Flush(int index) {
    Node& node = nodes_[static_cast<std::size_t>(index)];
    if (!node.folder.HasBatch()) return;
    if (node.stream < 0) {
      Stream stream;
      stream.node = index;
      stream.hello = {"run", "node" + std::to_string(index), ++node.streams,
                      node.folder.Unanswered()};
      node.stream = static_cast<int>(streams_.size());
      streams_.push_back(std::move(stream));
    }
    Stream& stream = streams_[static_cast<std::size_t>(node.stream)];
    stream.up.push_back(node.folder.TakeBatch(now_));
  }

  // What was sent before a stream broke may still come, or may not.
  void Up(int index) {
    if (streams_.empty()) return;
    Stream& stream = streams_[static_cast<std::size_t>(index)];
    if (stream.up.empty() || stream.hub_knows) return;
    if (stream.cut && Below(2) == 0) {
      stream.up.clear();
      return;
    }
    StoreBatch batch = std::move(stream.up.front());
    stream.up.pop_front();
    if (!stream.opened) {
      stream.opened = true;
      stream.peer = StorePeer{++last_peer_};
      const StorePeer peer = stream.peer;
      by_peer_[peer] = index;
      Send(hub_.Open(peer, stream.hello));
    }
    Send(hub_.Receive(streams_[static_cast<std::size_t>(index)].peer, batch, now_));
  }

  void Send(StoreEffects effects) {
    for (StoreEffect& effect : effects) {
      if (auto* say = std::get_if<StoreSay>(&effect)) {
        streams_[static_cast<std::size_t>(by_peer_.at(say->peer))].down.push_back(
            std::move(say->reply));
      } else {
        Stream& ended =
            streams_[static_cast<std::size_t>(by_peer_.at(std::get<StoreEnd>(effect).peer))];
        ended.cut = true;
      }
    }
  }

  bool Down(int index) {
    if (streams_.empty()) return true;
    Stream& stream = streams_[static_cast<std::size_t>(index)];
    if (stream.down.empty() || stream.node_knows) return true;
    if (stream.cut && Below(2) == 0) {
      stream.down.clear();
      return true;
    }
    std::vector<StoreReply> replies;
    for (int count = 1 + Below(3); count > 0 && !stream.down.empty(); --count) {
      replies.push_back(std::move(stream.down.front()));
      stream.down.pop_front();
    }
    return Take(nodes_[static_cast<std::size_t>(stream.node)].folder.Receive(std::move(replies)));
  }

  void Cut(int index) {
    Node& node = nodes_[static_cast<std::size_t>(index)];
    if (node.stream < 0) return;
    Stream& stream = streams_[static_cast<std::size_t>(node.stream)];
    if (!stream.cut) ++breaks_;
    stream.cut = true;
  }

  // One side learns that a stream has broken.
  bool Notice(int index, bool surely = false) {
    if (streams_.empty()) return true;
    Stream& stream = streams_[static_cast<std::size_t>(index)];
    if (!stream.cut) return true;
    if (!stream.hub_knows && (surely || Below(3) == 0)) {
      stream.hub_knows = true;
      if (stream.opened) hub_.Gone(stream.peer);
    }
    Stream& again = streams_[static_cast<std::size_t>(index)];
    if (!again.node_knows && (surely || Below(6) == 0)) {
      again.node_knows = true;
      Node& node = nodes_[static_cast<std::size_t>(again.node)];
      if (node.stream == index) {
        node.stream = -1;
        node.folder.Lost();
      }
    }
    return true;
  }

  bool Pass(milliseconds time) {
    now_ += time;
    Send(hub_.Tick(now_));
    for (Node& node : nodes_) {
      if (node.stream < 0 && !Take(node.folder.Tick(now_))) return false;
    }
    return true;
  }

  std::mt19937 random_;
  TimePoint now_{std::chrono::hours(1)};
  StoreHub hub_{kRound};
  std::array<Node, kNodes> nodes_;
  std::vector<Stream> streams_;
  std::map<StorePeer, int> by_peer_;
  std::uint64_t last_peer_ = 0;
  std::uint64_t ids_ = 0;
  int pushed_ = 0;
  std::array<bool, kClients> busy_{};
  LinearChecker checker_;
  std::size_t asked_ = 0;
  std::size_t answered_ = 0;
  std::size_t breaks_ = 0;
};

TEST(StoreLinearTest, TheWorkersAnswersAreThoseOfOneStore) {
  std::size_t breaks = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed);
    for (int step = 0; step < 1500; ++step) {
      ASSERT_TRUE(cluster.Step()) << "at step " << step;
    }
    ASSERT_TRUE(cluster.Finish());
    ASSERT_EQ(cluster.answered(), cluster.asked());
    breaks += cluster.breaks();
  }
  EXPECT_GT(breaks, 100u);
}

}  // namespace
}  // namespace ddprun
