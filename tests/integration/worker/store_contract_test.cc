// SPDX-License-Identifier: Apache-2.0
// What a process group may expect of a c10d::Store: the same cases against PyTorch's own two and
// against ours, over the service and through an agent's proxy. Where PyTorch's two differ the case
// says which of them ours follows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <future>
#include <memory>

#include "tests/integration/worker/service.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Bytes = std::vector<uint8_t>;

constexpr milliseconds kLong{20'000};
constexpr milliseconds kShort{50};

// Makes a store, and further clients of the same one.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual c10::intrusive_ptr<c10d::Store> NewClient() = 0;
};

class HashStoreUnderTest : public StoreUnderTest {
 public:
  // clone() of a HashStore is the store itself, so its timeout is shared; there is only one client.
  c10::intrusive_ptr<c10d::Store> NewClient() override { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
};

class TcpStoreUnderTest : public StoreUnderTest {
 public:
  c10::intrusive_ptr<c10d::Store> NewClient() override {
    c10d::TCPStoreOptions options;
    options.port = server_ ? server_->getPort() : std::uint16_t{0};
    options.isServer = !server_;
    options.waitWorkers = false;
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    if (!server_) server_ = store;
    return store;
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> server_;
};

class ProxyUnderTest : public StoreUnderTest {
 public:
  c10::intrusive_ptr<c10d::Store> NewClient() override {
    return service_.ConnectThroughProxy(kLong);
  }

 private:
  Service service_;
};

// One client after the other on another node.
class TwoNodesUnderTest : public StoreUnderTest {
 public:
  c10::intrusive_ptr<c10d::Store> NewClient() override {
    return clients_++ % 2 == 0 ? service_.ConnectThroughProxy(kLong)
                               : service_.ConnectThroughOtherProxy(kLong);
  }

 private:
  Service service_;
  int clients_ = 0;
};

template <class T>
class StoreContract : public testing::Test {
 protected:
  void SetUp() override {
    store_ = under_test_.NewClient();
    other_ = under_test_.NewClient();
    store_->setTimeout(kLong);
    other_->setTimeout(kLong);
  }

  bool IsHashStore() const { return std::is_same_v<T, HashStoreUnderTest>; }
  bool IsOurs() const {
    return std::is_same_v<T, ProxyUnderTest> || std::is_same_v<T, TwoNodesUnderTest>;
  }

  // After what a store need not answer (set, append, multiSet, queuePush) and before another client
  // asks. TCPStore answers none of them: only what the same client asks next is sure to come after.
  void Settle(c10d::Store& writer) const {
    if (std::is_same_v<T, TcpStoreUnderTest>) writer.check({"settled"});
  }

  T under_test_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Store> other_;
};

struct Names {
  template <class T>
  static std::string GetName(int) {
    if (std::is_same_v<T, HashStoreUnderTest>) return "HashStore";
    if (std::is_same_v<T, TcpStoreUnderTest>) return "TCPStore";
    if (std::is_same_v<T, TwoNodesUnderTest>) return "TwoNodes";
    return "Proxy";
  }
};
using Stores =
    testing::Types<HashStoreUnderTest, TcpStoreUnderTest, ProxyUnderTest, TwoNodesUnderTest>;
TYPED_TEST_SUITE(StoreContract, Stores, Names);

Bytes AllBytes() {
  Bytes bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}

TYPED_TEST(StoreContract, WhatOneSetsAnotherGetsByteForByte) {
  this->store_->set("key", AllBytes());
  EXPECT_EQ(this->other_->get("key"), AllBytes());
}

TYPED_TEST(StoreContract, AnEmptyValueIsAValue) {
  this->store_->set("empty", Bytes{});
  EXPECT_EQ(this->other_->get("empty"), Bytes{});
  EXPECT_TRUE(this->store_->check({"empty"}));
}

TYPED_TEST(StoreContract, SetReplaces) {
  this->store_->set("key", "old");
  this->store_->set("key", "new");
  EXPECT_EQ(this->store_->get_to_str("key"), "new");
}

TYPED_TEST(StoreContract, ValuesOfAMegabytePass) {
  const Bytes large(1 << 20, 7);
  this->store_->set("large", large);
  EXPECT_EQ(this->other_->get("large"), large);
}

TYPED_TEST(StoreContract, GetWaitsForTheKey) {
  auto got = std::async(std::launch::async, [this] { return this->other_->get_to_str("late"); });
  this->store_->set("late", "here");
  EXPECT_EQ(got.get(), "here");
}

TYPED_TEST(StoreContract, WaitWaitsForAllKeys) {
  auto waited = std::async(std::launch::async, [this] {
    this->other_->wait({"one", "two"}, kLong);
  });
  this->store_->set("one", "1");
  this->store_->set("two", "2");
  EXPECT_NO_THROW(waited.get());
}

TYPED_TEST(StoreContract, AWaitThatEndsThrowsDistStoreErrorThatNamesTheKeys) {
  this->store_->set("there", "1");
  try {
    this->store_->wait({"there", "missing-key"}, kShort);
    FAIL() << "waited for a key that nobody sets";
  } catch (const c10::DistStoreError& error) {
    // HashStore says no more than "Wait timeout"; ours follows TCPStore, whose words people search
    // for.
    if (!this->IsHashStore()) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("missing-key"));
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("wait timeout after 50ms"));
    }
  }
}

TYPED_TEST(StoreContract, GetEndsAtTheStoresOwnTimeout) {
  this->store_->setTimeout(kShort);
  EXPECT_EQ(this->store_->getTimeout(), kShort);
  EXPECT_THROW(this->store_->get("missing"), c10::DistStoreError);
  EXPECT_THROW(this->store_->wait({"missing"}), c10::DistStoreError);
}

TYPED_TEST(StoreContract, AWaitThatEndedLeavesTheStoreUsable) {
  EXPECT_THROW(this->store_->wait({"missing"}, kShort), c10::DistStoreError);
  this->store_->set("missing", "now");
  EXPECT_EQ(this->store_->get_to_str("missing"), "now");
}

TYPED_TEST(StoreContract, AddCountsFromZeroAndStoresDecimalText) {
  EXPECT_EQ(this->store_->add("counter", 5), 5);
  EXPECT_EQ(this->other_->add("counter", -7), -2);
  EXPECT_EQ(this->store_->get_to_str("counter"), "-2");
}

TYPED_TEST(StoreContract, AddReadsANumberThatWasSet) {
  this->store_->set("counter", "40");
  EXPECT_EQ(this->store_->add("counter", 2), 42);
}

TYPED_TEST(StoreContract, ConcurrentAddsAreNotLost) {
  constexpr int kTimes = 200;
  const auto add = [](c10d::Store& store) {
    for (int i = 0; i < kTimes; ++i) store.add("counter", 1);
  };
  auto other = std::async(std::launch::async, [&] { add(*this->other_); });
  add(*this->store_);
  other.get();
  EXPECT_EQ(this->store_->add("counter", 0), 2 * kTimes);
}

TYPED_TEST(StoreContract, CompareSetReplacesWhatIsExpected) {
  this->store_->set("key", "old");
  EXPECT_EQ(this->store_->compareSet("key", "old", "new"), "new");
  EXPECT_EQ(this->store_->get_to_str("key"), "new");
}

TYPED_TEST(StoreContract, CompareSetLeavesWhatIsNotAndTellsIt) {
  this->store_->set("key", "other");
  EXPECT_EQ(this->store_->compareSet("key", "old", "new"), "other");
  EXPECT_EQ(this->store_->get_to_str("key"), "other");
}

TYPED_TEST(StoreContract, CompareSetOfAnAbsentKeyWithNothingExpectedSetsIt) {
  EXPECT_EQ(this->store_->compareSet("key", "", "new"), "new");
  EXPECT_EQ(this->store_->get_to_str("key"), "new");
}

TYPED_TEST(StoreContract, CompareSetOfAnAbsentKeyWithSomethingExpectedSetsNothing) {
  EXPECT_EQ(this->store_->compareSet("key", "old", "new"), "old");
  EXPECT_FALSE(this->store_->check({"key"}));
}

TYPED_TEST(StoreContract, CheckIsTrueIfAllKeysAreThere) {
  this->store_->set("one", "1");
  EXPECT_TRUE(this->store_->check({"one"}));
  EXPECT_FALSE(this->store_->check({"one", "two"}));
}

TYPED_TEST(StoreContract, DeleteSaysWhetherTheKeyWasThere) {
  this->store_->set("key", "1");
  EXPECT_TRUE(this->store_->deleteKey("key"));
  EXPECT_FALSE(this->store_->deleteKey("key"));
  EXPECT_FALSE(this->store_->check({"key"}));
}

TYPED_TEST(StoreContract, NumKeysCounts) {
  // TCPStore counts a key of its own.
  const int64_t before = this->store_->getNumKeys();
  this->store_->set("one", "1");
  this->store_->set("two", "2");
  EXPECT_EQ(this->store_->getNumKeys(), before + 2);
  this->store_->deleteKey("one");
  EXPECT_EQ(this->store_->getNumKeys(), before + 1);
}

TYPED_TEST(StoreContract, HasAllVerbs) { EXPECT_TRUE(this->store_->hasExtendedApi()); }

TYPED_TEST(StoreContract, AppendMakesAndExtends) {
  this->store_->append("key", Bytes{'a', 'b'});
  // TCPStore answers no append: what the other client asks may come first.
  EXPECT_EQ(this->store_->get_to_str("key"), "ab");
  this->other_->append("key", Bytes{'c'});
  EXPECT_EQ(this->other_->get_to_str("key"), "abc");
}

TYPED_TEST(StoreContract, MultiSetAndMultiGetKeepTheOrder) {
  this->store_->multiSet({"b", "a"}, {Bytes{1}, Bytes{2, 3}});
  EXPECT_THAT(this->other_->multiGet({"a", "b", "a"}),
              ElementsAre(Bytes{2, 3}, Bytes{1}, Bytes{2, 3}));
}

TYPED_TEST(StoreContract, MultiGetWaitsForAllKeys) {
  auto got = std::async(std::launch::async, [this] { return this->other_->multiGet({"a", "b"}); });
  this->store_->set("a", Bytes{1});
  this->store_->set("b", Bytes{2});
  EXPECT_THAT(got.get(), ElementsAre(Bytes{1}, Bytes{2}));
}

TYPED_TEST(StoreContract, ListKeysListsKeys) {
  this->store_->set("b", "1");
  this->store_->set("a", "2");
  this->store_->deleteKey("b");
  // TCPStore puts a slash before each key, and lists one of its own; ours follows HashStore, as
  // PrefixStore expects.
  std::vector<std::string> keys = this->other_->listKeys();
  for (std::string& key : keys) {
    if (key.rfind('/', 0) == 0) key.erase(0, 1);
  }
  EXPECT_THAT(keys, Contains("a"));
  EXPECT_THAT(keys, Not(Contains("b")));
}

TYPED_TEST(StoreContract, QueuesGiveInOrder) {
  this->store_->queuePush("queue", Bytes{1});
  this->store_->queuePush("queue", Bytes{2});
  this->Settle(*this->store_);
  EXPECT_EQ(this->other_->queueLen("queue"), 2);
  EXPECT_EQ(this->other_->queuePop("queue", true), Bytes{1});
  EXPECT_EQ(this->other_->queuePop("queue", false), Bytes{2});
  EXPECT_EQ(this->other_->queueLen("queue"), 0);
}

TYPED_TEST(StoreContract, PopWithoutWaitingOfAnEmptyQueueThrowsDistQueueEmptyError) {
  EXPECT_THROW(this->store_->queuePop("queue", false), c10::DistQueueEmptyError);
}

TYPED_TEST(StoreContract, PopWaitsForAPush) {
  auto popped =
      std::async(std::launch::async, [this] { return this->other_->queuePop("queue", true); });
  this->store_->queuePush("queue", Bytes{9});
  EXPECT_EQ(popped.get(), Bytes{9});
}

TYPED_TEST(StoreContract, PopEndsAtTheStoresTimeout) {
  this->store_->setTimeout(kShort);
  EXPECT_THROW(this->store_->queuePop("queue", true), c10::DistStoreError);
}

TYPED_TEST(StoreContract, ACloneSharesTheKeys) {
  const auto clone = this->store_->clone();
  clone->set("key", "from the clone");
  EXPECT_EQ(this->store_->get_to_str("key"), "from the clone");
}

TYPED_TEST(StoreContract, ACloneHasATimeoutOfItsOwn) {
  // HashStore's clone is itself; ours follows TCPStore.
  if (this->IsHashStore()) return;
  const auto clone = this->store_->clone();
  EXPECT_EQ(clone->getTimeout(), kLong);
  clone->setTimeout(kShort);
  EXPECT_EQ(this->store_->getTimeout(), kLong);
}

TYPED_TEST(StoreContract, PrefixesKeepKeysApart) {
  c10d::PrefixStore first("first", this->store_);
  c10d::PrefixStore second("second", this->store_);
  first.set("key", Bytes{1});
  second.set("key", Bytes{2});
  EXPECT_EQ(first.get("key"), Bytes{1});
  EXPECT_EQ(this->other_->get("second/key"), Bytes{2});
}

TYPED_TEST(StoreContract, AWaitHoldsUpNoOtherThreadOfTheSameStore) {
  // TCPStore holds its one socket while it waits, which is why callers clone it; HashStore and ours
  // do not.
  if (!this->IsHashStore() && !this->IsOurs()) return;
  auto waited = std::async(std::launch::async, [this] { return this->store_->get_to_str("late"); });
  this->store_->set("late", "set by the same store");
  EXPECT_EQ(waited.get(), "set by the same store");
}

// What one has read before, another changes: no cache may stand between.
TYPED_TEST(StoreContract, WhatWasReadBeforeIsReadAnew) {
  this->store_->set("key", "1");
  this->Settle(*this->store_);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(this->other_->add("key", 1), 2);
    ASSERT_EQ(this->store_->get_to_str("key"), "2");
    this->other_->append("key", Bytes{'0'});
    this->Settle(*this->other_);
    ASSERT_EQ(this->store_->get_to_str("key"), "20");
    ASSERT_EQ(this->other_->compareSet("key", "20", "30"), "30");
    ASSERT_EQ(this->store_->get_to_str("key"), "30");
    this->other_->multiSet({"key", "more"}, {Bytes{'4'}, Bytes{'5'}});
    this->Settle(*this->other_);
    ASSERT_THAT(this->store_->multiGet({"more", "key"}), ElementsAre(Bytes{'5'}, Bytes{'4'}));
    this->other_->set("key", "1");
    this->Settle(*this->other_);
    ASSERT_EQ(this->store_->get_to_str("key"), "1");
  }
}

TYPED_TEST(StoreContract, WhatWasThereBeforeAndIsDeletedIsMissed) {
  for (int i = 0; i < 5; ++i) {
    this->store_->set("key", "1");
    this->other_->wait({"key"});
    ASSERT_EQ(this->other_->get_to_str("key"), "1");
    ASSERT_TRUE(this->other_->check({"key"}));
    ASSERT_TRUE(this->store_->deleteKey("key"));
    ASSERT_FALSE(this->other_->check({"key"}));
    ASSERT_THROW(this->other_->wait({"key"}, kShort), c10::DistStoreError);
  }
}

TYPED_TEST(StoreContract, ManyWaitForOneKeyAndAllGetIt) {
  constexpr int kWaiting = 8;
  std::vector<c10::intrusive_ptr<c10d::Store>> clients;
  std::vector<std::future<std::string>> got;
  for (int i = 0; i < kWaiting; ++i) clients.push_back(this->under_test_.NewClient());
  for (auto& client : clients) {
    client->setTimeout(kLong);
    got.push_back(std::async(std::launch::async, [&] { return client->get_to_str("late"); }));
  }
  this->store_->set("late", "here");
  for (auto& one : got) EXPECT_EQ(one.get(), "here");
}

TYPED_TEST(StoreContract, EveryAddOfManyHasItsOwnCount) {
  constexpr int kClients = 6;
  constexpr int kTimes = 50;
  std::vector<c10::intrusive_ptr<c10d::Store>> clients;
  std::vector<std::future<std::vector<int64_t>>> counts;
  for (int i = 0; i < kClients; ++i) clients.push_back(this->under_test_.NewClient());
  for (auto& client : clients) {
    counts.push_back(std::async(std::launch::async, [&] {
      std::vector<int64_t> seen;
      for (int i = 0; i < kTimes; ++i) seen.push_back(client->add("counter", 1));
      return seen;
    }));
  }
  std::vector<int64_t> all;
  for (auto& one : counts) {
    for (const int64_t count : one.get()) all.push_back(count);
  }
  std::sort(all.begin(), all.end());
  for (int i = 0; i < kClients * kTimes; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i + 1);
}

TYPED_TEST(StoreContract, EveryPushedValueIsPoppedOnce) {
  constexpr int kValues = 100;
  auto popping = std::async(std::launch::async, [&] {
    std::vector<uint8_t> values;
    for (int i = 0; i < kValues / 2; ++i) values.push_back(this->other_->queuePop("q", true)[0]);
    return values;
  });
  std::vector<uint8_t> values;
  for (int i = 0; i < kValues; ++i) {
    this->store_->queuePush("q", Bytes{static_cast<uint8_t>(i)});
  }
  for (int i = 0; i < kValues / 2; ++i) values.push_back(this->store_->queuePop("q", true)[0]);
  for (const uint8_t value : popping.get()) values.push_back(value);
  std::sort(values.begin(), values.end());
  for (int i = 0; i < kValues; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace ddprun
